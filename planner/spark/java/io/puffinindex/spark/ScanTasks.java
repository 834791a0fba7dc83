package io.puffinindex.spark;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.ScanTask;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;

/** The tasks of Iceberg's batch scans: read, narrowed to row groups, replaced. */
public final class ScanTasks {
  private ScanTasks() {}

  /**
   * The tasks of a scan; a {@link Pruned} list if a rule has pruned the scan before. Empty for a
   * scan of no data files.
   */
  @SuppressWarnings("unchecked") // the tasks of a scan are of one kind
  public static List<FileScanTask> of(Object scan) {
    List<?> tasks = IcebergScans.tasks(scan);
    return tasks.isEmpty() || tasks.get(0) instanceof FileScanTask
        ? (List<FileScanTask>) tasks
        : List.of();
  }

  /** Give a scan other tasks. Iceberg then groups the tasks anew. */
  public static void replace(Object scan, Pruned tasks) {
    IcebergScans.resetTasks(scan, tasks);
  }

  /**
   * Mark a scan as pruned and leave it its tasks. The groups that Iceberg has made of the tasks
   * stay.
   */
  public static void mark(Object scan, List<FileScanTask> tasks) throws IllegalAccessException {
    IcebergScans.putTasks(scan, new Pruned(tasks));
  }

  /** What a scan would read of some tasks. The scan itself keeps its own tasks. */
  public static Batch batchOf(Scan scan, List<FileScanTask> tasks) throws IllegalAccessException {
    // The scan locks itself while it plans tasks or groups.
    synchronized (scan) {
      List<ScanTask> before = IcebergScans.tasks(scan);
      Object groups = IcebergScans.groups(scan);
      try {
        replace(scan, new Pruned(tasks));
        return scan.toBatch();
      } finally {
        IcebergScans.putTasks(scan, before);
        IcebergScans.putGroups(scan, groups);
      }
    }
  }

  /**
   * A task that splits into some parts of another task, such as its surviving row groups.
   *
   * <p>The task stays on the driver. Iceberg splits it before it sends tasks to executors, so
   * executors see Iceberg's own classes, with residuals and deletes attached.
   *
   * @param task the whole task
   * @param parts tasks of single row groups
   */
  public static FileScanTask narrow(FileScanTask task, List<FileScanTask> parts) {
    return (FileScanTask)
        Proxy.newProxyInstance(
            FileScanTask.class.getClassLoader(),
            new Class<?>[] {FileScanTask.class},
            new Narrowed(task, parts));
  }

  /** The task that a narrowed task is a part of; any other task itself. */
  public static FileScanTask whole(FileScanTask task) {
    return handlerOf(task) instanceof Narrowed narrowed ? narrowed.task : task;
  }

  /** Where the parts of a narrowed task begin; null for any other task. */
  public static Set<Long> starts(FileScanTask task) {
    return handlerOf(task) instanceof Narrowed narrowed
        ? narrowed.parts.stream().map(FileScanTask::start).collect(Collectors.toSet())
        : null;
  }

  /** What answers for a proxy; null for anything else. */
  public static InvocationHandler handlerOf(Object object) {
    return object != null && Proxy.isProxyClass(object.getClass())
        ? Proxy.getInvocationHandler(object)
        : null;
  }

  /** Let another object answer a call. */
  public static Object forward(Object target, Method method, Object[] arguments) throws Throwable {
    try {
      method.setAccessible(true);
      return method.invoke(target, arguments);
    } catch (InvocationTargetException e) {
      throw e.getCause();
    }
  }

  /**
   * Answers for a narrowed task: its parts, sums over the parts, and otherwise what the whole task
   * says.
   */
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
}
