package io.puffinindex.spark;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.List;
import org.apache.commons.lang3.exception.ExceptionUtils;
import org.apache.commons.lang3.reflect.FieldUtils;
import org.apache.commons.lang3.reflect.MethodUtils;
import org.apache.iceberg.BaseFileScanTask;
import org.apache.iceberg.BaseMetadataTable;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.ScanTask;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.spark.source.SparkTable;

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

  /**
   * Before Iceberg 1.12 on Spark 4.1, a scan of appended files only has the same class, and this
   * field; null since.
   */
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

  /**
   * The ID of a scan's snapshot; null if it is the latest one in a release that does not say which.
   */
  public static Long snapshot(Object scan) {
    return (Long) call(SNAPSHOT, scan);
  }

  /**
   * Whether a scan reads something else than the rows of one snapshot, such as a metadata table.
   */
  public static boolean isOfNoSnapshot(Object scan) throws IllegalAccessException {
    return table(scan) instanceof BaseMetadataTable || (START != null && START.get(scan) != null);
  }

  @SuppressWarnings("unchecked") // reflection
  static List<ScanTask> tasks(Object scan) {
    return (List<ScanTask>) call(TASKS, scan);
  }

  /** Give a scan other tasks. Iceberg then groups the tasks anew. */
  static void resetTasks(Object scan, List<? extends ScanTask> tasks) {
    call(RESET_TASKS, scan, tasks);
  }

  /** Give a scan other tasks that have the same groups. */
  static void putTasks(Object scan, List<? extends ScanTask> tasks) throws IllegalAccessException {
    OWN_TASKS.set(scan, tasks);
  }

  static Object groups(Object scan) throws IllegalAccessException {
    return TASK_GROUPS.get(scan);
  }

  static void putGroups(Object scan, Object groups) throws IllegalAccessException {
    TASK_GROUPS.set(scan, groups);
  }

  /** The part of a task that reads a range of bytes of its data file. */
  static FileScanTask part(FileScanTask task, long start, long length) {
    return (FileScanTask) call(NEW_SPLIT, task, task, start, length);
  }

  private static Object call(Method method, Object target, Object... arguments) {
    try {
      return method.invoke(target, arguments);
    } catch (InvocationTargetException e) {
      return ExceptionUtils.rethrow(e.getCause());
    } catch (IllegalAccessException e) {
      throw new IllegalStateException(e);
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
    if (field == null) {
      throw new IllegalStateException(
          "no field " + name + " in " + BATCH_SCAN + ": unknown Iceberg version");
    }
    return field;
  }
}
