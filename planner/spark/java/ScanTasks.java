package io.puffinindex.spark;

import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.commons.lang3.reflect.FieldUtils;
import org.apache.commons.lang3.reflect.MethodUtils;
import org.apache.iceberg.FileScanTask;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import scala.Option;

/**
 * The tasks of Iceberg's batch scans: read, narrowed to row groups, replaced. The hook and the benchmark share this
 * class.
 *
 * <p>Iceberg's scan classes are package-private and inherit most methods, so reflection calls them.
 */
public class ScanTasks {
  private static final String SCAN = "org.apache.iceberg.spark.source.SparkBatchQueryScan";

  private ScanTasks() {}

  public static boolean isBatchScan(Object scan) {
    return scan.getClass().getName().equals(SCAN);
  }

  /** The tasks of a scan; a {@link Pruned} list if a rule has pruned the scan before. */
  public static List of(Object scan) throws Exception {
    return (List) call(scan, "tasks");
  }

  /** Give a scan other tasks. Iceberg then groups the tasks anew. */
  public static void replace(Object scan, Pruned tasks) throws Exception {
    MethodUtils.invokeMethod(scan, true, "resetTasks", tasks);
  }

  /** Mark a scan as pruned and leave it its tasks. The groups that Iceberg has made of the tasks stay. */
  public static void mark(Object scan, List tasks) throws Exception {
    FieldUtils.writeField(scan, "tasks", new Pruned(tasks), true);
  }

  /** What a scan would read of some tasks. The scan itself keeps its own tasks. */
  public static Batch batchOf(Object scan, List tasks) throws Exception {
    // The scan locks itself while it plans tasks or groups.
    synchronized (scan) {
      Object before = of(scan);
      Object groups = FieldUtils.readField(scan, "taskGroups", true);
      try {
        replace(scan, new Pruned(tasks));
        return ((Scan) scan).toBatch();
      } finally {
        FieldUtils.writeField(scan, "tasks", before, true);
        FieldUtils.writeField(scan, "taskGroups", groups, true);
      }
    }
  }

  /**
   * A task that splits into some parts of another task, such as its surviving row groups.
   *
   * <p>The task stays on the driver. Iceberg splits it before it sends tasks to executors, so executors see Iceberg's
   * own classes, with residuals and deletes attached.
   *
   * @param task the whole task
   * @param parts tasks of single row groups
   */
  public static FileScanTask narrow(FileScanTask task, List parts) {
    return (FileScanTask)
        Proxy.newProxyInstance(
            FileScanTask.class.getClassLoader(), new Class[] {FileScanTask.class}, new Narrowed(task, parts));
  }

  /** The task that a narrowed task is a part of; any other task itself. */
  public static Object whole(Object task) {
    Narrowed narrowed = narrowed(task);
    return narrowed == null ? task : narrowed.task;
  }

  /** Where the parts of a narrowed task begin, as Longs; null for any other task. */
  public static Set starts(Object task) {
    Narrowed narrowed = narrowed(task);
    if (narrowed == null) {
      return null;
    }
    Set starts = new HashSet();
    for (FileScanTask part : narrowed.parts) {
      starts.add(part.start());
    }
    return starts;
  }

  private static Narrowed narrowed(Object task) {
    InvocationHandler handler = handlerOf(task);
    return handler instanceof Narrowed ? (Narrowed) handler : null;
  }

  /** What answers for a proxy; null for anything else. */
  public static InvocationHandler handlerOf(Object object) {
    return object != null && Proxy.isProxyClass(object.getClass()) ? Proxy.getInvocationHandler(object) : null;
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
   * Call a method without parameters, public or not, of an object's class or of a superclass.
   *
   * @param names what the method is called in one release or another
   */
  public static Object call(Object target, String... names) throws Exception {
    for (String name : names) {
      Method method = MethodUtils.getMatchingMethod(target.getClass(), name);
      if (method != null) {
        method.setAccessible(true);
        return method.invoke(target);
      }
    }
    throw new IllegalStateException("no method " + names[0] + " in " + target.getClass() + ": unknown Iceberg version");
  }

  /** Make an object of a class whose only constructor has more parameters in later releases, all of them optional. */
  public static Object made(Class<?> type, Object... first) throws Exception {
    Constructor constructor = type.getConstructors()[0];
    Object[] arguments = new Object[constructor.getParameterTypes().length];
    Arrays.fill(arguments, Option.empty());
    System.arraycopy(first, 0, arguments, 0, first.length);
    return constructor.newInstance(arguments);
  }

  /** Answers for a narrowed task: its parts, sums over the parts, and otherwise what the whole task says. */
  private static class Narrowed implements InvocationHandler {
    final FileScanTask task;
    final List<FileScanTask> parts;
    private final Map sums = new HashMap();

    Narrowed(FileScanTask task, List<FileScanTask> parts) {
      this.task = task;
      this.parts = parts;
      long length = 0;
      long sizeBytes = 0;
      long rows = 0;
      for (FileScanTask part : parts) {
        length += part.length();
        sizeBytes += part.sizeBytes();
        rows += part.estimatedRowsCount();
      }
      sums.put("length", length);
      sums.put("sizeBytes", sizeBytes);
      sums.put("estimatedRowsCount", rows);
    }

    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
      String name = method.getName();
      if (name.equals("split")) {
        return parts;
      }
      if (name.equals("equals")) {
        return Boolean.valueOf(proxy == arguments[0]);
      }
      Object sum = sums.get(name);
      return sum == null ? forward(task, method, arguments) : sum;
    }
  }

  /** The tasks of a scan that a rule has pruned. The optimizer applies a rule more than once. */
  public static class Pruned extends ArrayList {
    public Pruned(List tasks) {
      super(tasks);
    }
  }
}
