package io.puffinindex.spark.pages;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.commons.lang3.exception.ExceptionUtils;
import org.apache.commons.lang3.reflect.MethodUtils;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.ScanTaskGroup;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/**
 * Iceberg's batch, of whose row groups few rows may be wanted.
 *
 * <p>Spark runs equal batches once. Iceberg's batches are equal if their scans have the same
 * filters, and then the same rows are wanted, unless a LIMIT says more.
 */
public final class FewRowsBatch implements Batch {
  private final Batch batch;
  private final String limit;
  private final Map<String, List<WantedRowGroup>> wanted;

  /**
   * A batch.
   *
   * @param limit what a LIMIT says of the scan, empty without one
   * @param wanted row groups of which few rows are wanted, by location of their data file
   */
  public FewRowsBatch(Batch batch, String limit, Map<String, List<WantedRowGroup>> wanted) {
    this.batch = batch;
    this.limit = limit;
    this.wanted = wanted;
  }

  @Override
  public InputPartition[] planInputPartitions() {
    return Arrays.stream(batch.planInputPartitions())
        .map(this::withFewRows)
        .toArray(InputPartition[]::new);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new FewRowsReaders(batch.createReaderFactory());
  }

  private InputPartition withFewRows(InputPartition partition) {
    Map<String, List<WantedRowGroup>> own = new HashMap<>();
    for (FileScanTask task : tasks(partition)) {
      String location = task.file().location();
      for (WantedRowGroup one : wanted.getOrDefault(location, List.of())) {
        if (one.first() < task.start() + task.length() && task.start() < one.end()) {
          own.computeIfAbsent(location, key -> new ArrayList<>()).add(one);
        }
      }
    }
    return own.isEmpty() ? partition : new FewRowsPartition(partition, own);
  }

  @SuppressWarnings("unchecked") // reflection
  private static List<FileScanTask> tasks(InputPartition partition) {
    try {
      var group =
          (ScanTaskGroup<FileScanTask>) MethodUtils.invokeMethod(partition, true, "taskGroup");
      return List.copyOf(group.tasks());
    } catch (ReflectiveOperationException e) {
      return ExceptionUtils.rethrow(e);
    }
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
