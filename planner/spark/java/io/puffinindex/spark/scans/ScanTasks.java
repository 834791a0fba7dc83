package io.puffinindex.spark.scans;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.iceberg.FileScanTask;

/** The tasks of Iceberg's batch scans: read, narrowed to row groups, replaced. */
public final class ScanTasks {
  private ScanTasks() {}

  /**
   * A task that splits into parts of another task, such as its surviving row groups. Iceberg splits
   * it on the driver, so executors see Iceberg's own classes, with residuals and deletes attached.
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
  public static Object forward(Object target, Method method, Object[] arguments) {
    method.setAccessible(true);
    return IcebergScans.call(method, target, arguments);
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
}
