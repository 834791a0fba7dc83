package io.puffinindex.spark.pages;

import io.puffinindex.spark.scans.IcebergScans;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.iceberg.FileScanTask;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/**
 * Iceberg's batch, and the rows that a query wants of some row groups.
 *
 * <p>Spark runs equal batches once. Iceberg's batches are equal if their scans have the same
 * filters. Such scans want the same rows, unless a LIMIT says more.
 *
 * @param limit what a LIMIT says of the scan, empty without one
 * @param wanted the wanted rows of row groups, by location of the data file; other row groups are
 *     read whole
 */
public record FewRowsBatch(Batch batch, String limit, Map<String, List<WantedRowGroup>> wanted)
    implements Batch {
  @Override
  public InputPartition[] planInputPartitions() {
    InputPartition[] partitions = batch.planInputPartitions();
    return wanted.isEmpty()
        ? partitions
        : Arrays.stream(partitions).map(this::withFewRows).toArray(InputPartition[]::new);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    // Spark may read the partitions of a later batch, which has keys of a join, with this factory.
    return new FewRowsReaders(batch.createReaderFactory(), PagesNotPicked.ofScan());
  }

  /** A partition with the wanted rows of its row groups; two of its tasks may share a row group. */
  private InputPartition withFewRows(InputPartition partition) {
    Map<String, List<WantedRowGroup>> own =
        IcebergScans.tasks(partition).stream()
            .collect(Collectors.groupingBy(task -> task.file().location()))
            .entrySet()
            .stream()
            .collect(
                Collectors.toMap(Map.Entry::getKey, file -> among(file.getKey(), file.getValue())));
    own.values().removeIf(List::isEmpty);
    return own.isEmpty() ? partition : new FewRowsPartition(partition, own);
  }

  private List<WantedRowGroup> among(String location, List<FileScanTask> tasks) {
    return wanted.getOrDefault(location, List.of()).stream()
        .filter(one -> tasks.stream().anyMatch(one::overlaps))
        .toList();
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof FewRowsBatch that
        && batch.equals(that.batch)
        && limit.equals(that.limit);
  }

  @Override
  public int hashCode() {
    return batch.hashCode();
  }
}
