package io.puffinindex.spark.scans;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.List;
import java.util.Objects;
import org.apache.commons.lang3.exception.ExceptionUtils;
import org.apache.commons.lang3.reflect.FieldUtils;
import org.apache.commons.lang3.reflect.MethodUtils;
import org.apache.iceberg.BaseFileScanTask;
import org.apache.iceberg.BaseMetadataTable;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;

/**
 * What is not public of Iceberg's batch scans. Nothing else reaches it. The class does not load in
 * a release that lacks a part, so the index is not used there.
 */
public final class IcebergScans {
  private static final Class<?> BATCH_SCAN = type("SparkBatchQueryScan");

  /** Iceberg answers some aggregates from the metadata of a snapshot by such a scan. */
  private static final Class<?> LOCAL_SCAN = type("SparkLocalScan");

  // A method has several names if it is called otherwise in some release.
  private static final Method TABLE = method(BATCH_SCAN, List.of("table"));
  private static final Method SCHEMA = method(BATCH_SCAN, List.of("schema", "expectedSchema"));
  private static final Method FILTERS = method(BATCH_SCAN, List.of("filters", "filterExpressions"));
  private static final Method CASE_SENSITIVE = method(BATCH_SCAN, List.of("caseSensitive"));
  private static final Method SNAPSHOT = method(BATCH_SCAN, List.of("snapshotId"));
  private static final Method TASKS = method(BATCH_SCAN, List.of("tasks"));
  private static final Method RESET_TASKS = method(BATCH_SCAN, List.of("resetTasks"), List.class);
  private static final Method NEW_SPLIT =
      method(
          BaseFileScanTask.class,
          List.of("newSplitTask"),
          FileScanTask.class,
          long.class,
          long.class);
  private static final Field OWN_TASKS = field("tasks");
  private static final Field TASK_GROUPS = field("taskGroups");

  /** Before Iceberg 1.12, a scan of appended files has the same class, and this field. */
  private static final Field START =
      FieldUtils.getDeclaredField(BATCH_SCAN, "startSnapshotId", true);

  private IcebergScans() {}

  public static boolean isBatchScan(Object scan) {
    return scan.getClass() == BATCH_SCAN;
  }

  public static boolean isLocalScan(Object scan) {
    return scan.getClass() == LOCAL_SCAN;
  }

  public static Table table(Object scan) {
    return (Table) call(TABLE, scan);
  }

  public static Schema schema(Object scan) {
    return (Schema) call(SCHEMA, scan);
  }

  @SuppressWarnings("unchecked") // reflection
  public static List<Expression> filters(Object scan) {
    return (List<Expression>) call(FILTERS, scan);
  }

  public static boolean isCaseSensitive(Object scan) {
    return (Boolean) call(CASE_SENSITIVE, scan);
  }

  /** The ID of a scan's snapshot; null if it is the latest one and the release does not say it. */
  public static Long snapshot(Object scan) {
    return (Long) call(SNAPSHOT, scan);
  }

  /** Whether a scan reads something else than the rows of a snapshot, such as metadata. */
  public static boolean isOfNoSnapshot(Object scan) throws IllegalAccessException {
    return table(scan) instanceof BaseMetadataTable || (START != null && START.get(scan) != null);
  }

  /** {@link ScanTasks.Pruned} tasks if a rule has pruned the scan; none if they are of no files. */
  @SuppressWarnings("unchecked") // the tasks of a scan are of one kind
  public static List<FileScanTask> tasks(Object scan) {
    List<?> tasks = (List<?>) call(TASKS, scan);
    return tasks.isEmpty() || tasks.get(0) instanceof FileScanTask
        ? (List<FileScanTask>) tasks
        : List.of();
  }

  /** Give a scan other tasks. Iceberg then groups the tasks anew. */
  public static void replaceTasks(Object scan, ScanTasks.Pruned tasks) {
    call(RESET_TASKS, scan, tasks);
  }

  /** Mark a scan as pruned, and leave it its tasks and the groups that Iceberg made of them. */
  public static void markAsPruned(Object scan, List<FileScanTask> tasks)
      throws IllegalAccessException {
    OWN_TASKS.set(scan, new ScanTasks.Pruned(tasks));
  }

  /** What a scan would read of some tasks. The scan itself keeps its own tasks. */
  public static Batch batchOf(Scan scan, List<FileScanTask> tasks) throws IllegalAccessException {
    // The scan locks itself while it plans tasks or groups.
    synchronized (scan) {
      Object before = call(TASKS, scan);
      Object groups = TASK_GROUPS.get(scan);
      try {
        replaceTasks(scan, new ScanTasks.Pruned(tasks));
        return scan.toBatch();
      } finally {
        OWN_TASKS.set(scan, before);
        TASK_GROUPS.set(scan, groups);
      }
    }
  }

  /** The part of a task that reads a range of bytes of its data file. */
  static FileScanTask part(FileScanTask task, long start, long length) {
    return (FileScanTask) call(NEW_SPLIT, task, task, start, length);
  }

  static Object call(Method method, Object target, Object... arguments) {
    try {
      return method.invoke(target, arguments);
    } catch (ReflectiveOperationException e) {
      return ExceptionUtils.rethrow(e instanceof InvocationTargetException ? e.getCause() : e);
    }
  }

  private static Class<?> type(String name) {
    try {
      return Class.forName(SparkTable.class.getPackageName() + "." + name);
    } catch (ClassNotFoundException e) {
      throw new IllegalStateException("no class " + name + ": unknown Iceberg version", e);
    }
  }

  private static Method method(Class<?> type, List<String> names, Class<?>... parameters) {
    for (String name : names) {
      Method method = MethodUtils.getMatchingMethod(type, name, parameters);
      if (method != null) {
        method.setAccessible(true);
        return method;
      }
    }
    throw new IllegalStateException(
        "no method " + names.get(0) + " in " + type + ": unknown Iceberg version");
  }

  private static Field field(String name) {
    Field field = FieldUtils.getField(BATCH_SCAN, name, true);
    return Objects.requireNonNull(field, "no field " + name + ": unknown Iceberg version");
  }
}
