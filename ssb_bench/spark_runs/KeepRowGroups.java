package io.puffinindex.bench;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.FileScanTask;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;

/**
 * Perfect pruning: an optimizer rule that is told beforehand which row groups hold a match, and lets a scan read just those.
 * Compiled by Janino: no generics, no lambdas. It knows nothing of any index, so that its time is a bound for all of them.
 */
public class KeepRowGroups extends Rule {
  private static final String SCAN = "org.apache.iceberg.spark.source.SparkBatchQueryScan";

  /** Survivors (BitSet of ordinals) by location of the data file; files that are not there are read whole. */
  private volatile Map survivors = new HashMap();

  public String ruleName() {
    return "KeepRowGroups";
  }

  /** Take the survivors of the queries to come, as `ordinal,ordinal,...` by location. */
  public void keep(Map ordinals) {
    Map next = new HashMap();
    for (Iterator it = ordinals.entrySet().iterator(); it.hasNext(); ) {
      Map.Entry entry = (Map.Entry) it.next();
      BitSet set = new BitSet();
      String[] numbers = ((String) entry.getValue()).split(",");
      for (int i = 0; i < numbers.length; i++) {
        if (numbers[i].length() > 0) {
          set.set(Integer.parseInt(numbers[i]));
        }
      }
      next.put(entry.getKey(), set);
    }
    survivors = next;
  }

  public TreeNode apply(TreeNode plan) {
    visit((LogicalPlan) plan);
    return plan;
  }

  private void visit(LogicalPlan plan) {
    if (plan instanceof DataSourceV2ScanRelation) {
      Object scan = ((DataSourceV2ScanRelation) plan).scan();
      if (scan.getClass().getName().equals(SCAN)) {
        try {
          prune(scan);
        } catch (Exception e) {
          throw new IllegalStateException("perfect pruning failed: " + e, e);
        }
      }
      return;
    }
    scala.collection.Iterator children = plan.children().iterator();
    while (children.hasNext()) {
      visit((LogicalPlan) children.next());
    }
  }

  private void prune(Object scan) throws Exception {
    List tasks = (List) method(scan.getClass(), "tasks").invoke(scan, new Object[0]);
    // The optimizer comes by more than once.
    if (tasks instanceof Kept) {
      return;
    }
    Kept kept = new Kept();
    for (Iterator it = tasks.iterator(); it.hasNext(); ) {
      FileScanTask task = (FileScanTask) it.next();
      BitSet ordinals = (BitSet) survivors.get(task.file().location());
      if (ordinals == null) {
        kept.add(task);
      } else if (!ordinals.isEmpty()) {
        kept.add(narrow(task, ordinals));
      }
    }
    method(scan.getClass(), "resetTasks").invoke(scan, new Object[] {kept});
  }

  private static FileScanTask narrow(final FileScanTask task, BitSet ordinals) {
    final List parts = new ArrayList();
    long bytes = 0;
    long sizeBytes = 0;
    long rows = 0;
    int ordinal = 0;
    for (Iterator it = task.split(1L).iterator(); it.hasNext(); ordinal++) {
      FileScanTask part = (FileScanTask) it.next();
      if (ordinals.get(ordinal)) {
        parts.add(part);
        bytes += part.length();
        sizeBytes += part.sizeBytes();
        rows += part.estimatedRowsCount();
      }
    }
    final Map sums = new HashMap();
    sums.put("length", Long.valueOf(bytes));
    sums.put("sizeBytes", Long.valueOf(sizeBytes));
    sums.put("estimatedRowsCount", Long.valueOf(rows));
    InvocationHandler handler =
        new InvocationHandler() {
          public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
            if (method.getName().equals("split")) {
              return parts;
            }
            if (method.getName().equals("equals")) {
              return Boolean.valueOf(proxy == arguments[0]);
            }
            Object sum = sums.get(method.getName());
            if (sum != null) {
              return sum;
            }
            try {
              return method.invoke(task, arguments);
            } catch (InvocationTargetException e) {
              throw e.getCause();
            }
          }
        };
    return (FileScanTask)
        Proxy.newProxyInstance(FileScanTask.class.getClassLoader(), new Class[] {FileScanTask.class}, handler);
  }

  /** Iceberg's scan classes are package-private and declare what is needed in superclasses. */
  private static Method method(Class type, String name) {
    for (Class c = type; c != null; c = c.getSuperclass()) {
      Method[] methods = c.getDeclaredMethods();
      for (int i = 0; i < methods.length; i++) {
        if (methods[i].getName().equals(name) && !methods[i].isBridge()) {
          methods[i].setAccessible(true);
          return methods[i];
        }
      }
    }
    throw new IllegalStateException("no method " + name + " in " + type.getName());
  }

  /** Marks the tasks of a scan that has been pruned. */
  private static class Kept extends ArrayList {}
}
