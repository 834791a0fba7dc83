package io.puffinindex.spark.pages;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.HasPartitionKey;
import org.apache.spark.sql.connector.read.InputPartition;

/**
 * A part of a scan of which few rows are wanted. It travels to the executor that reads it.
 *
 * @param partition Iceberg's
 * @param wanted by location of a data file, what is wanted of its row groups; row groups that are
 *     not named are read whole
 */
record FewRowsPartition(InputPartition partition, Map<String, List<WantedRowGroup>> wanted)
    implements InputPartition, HasPartitionKey {
  /** Iceberg's partition. */
  static InputPartition whole(InputPartition partition) {
    return partition instanceof FewRowsPartition few ? few.partition : partition;
  }

  @Override
  public String[] preferredLocations() {
    return partition.preferredLocations();
  }

  @Override
  public InternalRow partitionKey() {
    return ((HasPartitionKey) partition).partitionKey();
  }
}
