package io.puffinindex.spark.scans;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.commons.lang3.exception.ExceptionUtils;
import org.apache.commons.lang3.reflect.FieldUtils;
import org.apache.commons.lang3.reflect.MethodUtils;
import org.apache.iceberg.BaseFileScanTask;
import org.apache.iceberg.BaseMetadataTable;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.ScanTaskGroup;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.Scan;

/**
 * What is not public of Iceberg's batch scans, and their tasks: read, narrowed to row groups,
 * replaced. The class does not load in a release that lacks a part, so the index is not used there.
 */
public final class IcebergScans {
  private static final Class<?> BATCH_SCAN = type("SparkBatchQueryScan");

  /** Iceberg answers some aggregates from the metadata of a snapshot by such a scan. */
  private static final Class<?> LOCAL_SCAN = type("SparkLocalScan");

  // A method has several names if it is called otherwise in some release.
  private static final Method TABLE = method(BATCH_SCAN, List.of("table"));
  private static final Method SCHEMA = method(BATCH_SCAN, List.of("schema", "expectedSchema"));
  private static final Method FILTERS = method(BATCH_SCAN, List.of("filters", "filterExpressions"));
  private static final Method SNAPSHOT = method(BATCH_SCAN, List.of("snapshotId"));
  private static final Method TASKS = method(BATCH_SCAN, List.of("tasks"));
  private static final Method RESET_TASKS = method(BATCH_SCAN, List.of("resetTasks"), List.class);
  private static final Method TASK_GROUP =
      method(type("SparkInputPartition"), List.of("taskGroup"));
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

  /** The ID of a scan's snapshot; null if it is the latest one and the release does not say it. */
  public static Long snapshot(Object scan) {
    return (Long) call(SNAPSHOT, scan);
  }

  /** Whether a scan reads something else than the rows of a snapshot, such as metadata. */
  public static boolean isOfNoSnapshot(Object scan) throws IllegalAccessException {
    return table(scan) instanceof BaseMetadataTable || (START != null && START.get(scan) != null);
  }

  /** {@link Pruned} tasks if a rule has pruned the scan; none if they are of no files. */
  @SuppressWarnings("unchecked") // the tasks of a scan are of one kind
  public static List<FileScanTask> tasks(Object scan) {
    List<?> tasks = (List<?>) call(TASKS, scan);
    return tasks.isEmpty() || tasks.get(0) instanceof FileScanTask
        ? (List<FileScanTask>) tasks
        : List.of();
  }

  /** Give a scan other tasks. Iceberg then groups the tasks anew. */
  public static void replaceTasks(Object scan, Pruned tasks) {
    call(RESET_TASKS, scan, tasks);
  }

  /** Mark a scan as pruned, and leave it its tasks and the groups that Iceberg made of them. */
  public static void markAsPruned(Object scan, List<FileScanTask> tasks)
      throws IllegalAccessException {
    OWN_TASKS.set(scan, new Pruned(tasks));
  }

  /** The tasks of a part of such a scan. */
  @SuppressWarnings("unchecked") // the tasks of a batch scan are of files
  public static Collection<FileScanTask> tasks(InputPartition partition) {
    return ((ScanTaskGroup<FileScanTask>) call(TASK_GROUP, partition)).tasks();
  }

  /** What a scan would read of some tasks. The scan itself keeps its own tasks. */
  public static Batch batchOf(Scan scan, List<FileScanTask> tasks) throws IllegalAccessException {
    // The scan locks itself while it plans tasks or groups.
    synchronized (scan) {
      Object before = call(TASKS, scan);
      Object groups = TASK_GROUPS.get(scan);
      try {
        replaceTasks(scan, new Pruned(tasks));
        return scan.toBatch();
      } finally {
        OWN_TASKS.set(scan, before);
        TASK_GROUPS.set(scan, groups);
      }
    }
  }

  /**
   * A task that splits into ranges of bytes of another task, such as its surviving row groups; null
   * without any. What a narrowed task has lost stays lost. Iceberg splits the task on the driver,
   * so executors see Iceberg's own classes, with residuals and deletes attached.
   */
  static FileScanTask narrow(FileScanTask task, List<long[]> ranges) {
    FileScanTask whole = whole(task);
    Set<Long> left =
        handlerOf(task) instanceof Narrowed narrowed
            ? narrowed.parts.stream().map(FileScanTask::start).collect(Collectors.toSet())
            : null;
    List<FileScanTask> parts =
        ranges.stream()
            .filter(range -> left == null || left.contains(range[0]))
            .map(range -> (FileScanTask) call(NEW_SPLIT, whole, whole, range[0], range[1]))
            .toList();
    return parts.isEmpty()
        ? null
        : (FileScanTask)
            Proxy.newProxyInstance(
                FileScanTask.class.getClassLoader(),
                new Class<?>[] {FileScanTask.class},
                new Narrowed(whole, parts));
  }

  /** The task that a narrowed task is a part of; any other task itself. */
  public static FileScanTask whole(FileScanTask task) {
    return handlerOf(task) instanceof Narrowed narrowed ? narrowed.task : task;
  }

  /** What answers for a proxy; null for anything else. */
  public static InvocationHandler handlerOf(Object object) {
    return object != null && Proxy.isProxyClass(object.getClass())
        ? Proxy.getInvocationHandler(object)
        : null;
  }

  /** Let another object answer a call. */
  public static Object forward(Object target, Method method, Object[] arguments) {
    method.setAccessible(true);
    return call(method, target, arguments);
  }

  /** A narrowed task: its parts, sums of them, and otherwise what the whole task says. */
  private record Narrowed(FileScanTask task, List<FileScanTask> parts)
      implements InvocationHandler {
    @Override
    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
      return switch (method.getName()) {
        case "split" -> parts;
        case "equals" -> proxy == arguments[0];
        case "length" -> parts.stream().mapToLong(FileScanTask::length).sum();
        case "sizeBytes" -> parts.stream().mapToLong(FileScanTask::sizeBytes).sum();
        case "estimatedRowsCount" ->
            parts.stream().mapToLong(FileScanTask::estimatedRowsCount).sum();
        default -> forward(task, method, arguments);
      };
    }
  }

  /** The tasks of a scan that a rule has pruned. The optimizer applies a rule more than once. */
  public static class Pruned extends ArrayList<FileScanTask> {
    private static final long serialVersionUID = 1;

    public Pruned(List<FileScanTask> tasks) {
      super(tasks);
    }
  }

  private static Object call(Method method, Object target, Object... arguments) {
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
