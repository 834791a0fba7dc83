package io.puffinindex.spark;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.collection.JavaConverters;

/** Scala's lists, nodes of plans and expressions, and maps. */
public class Lists {
  private Lists() {}

  /** An immutable list, which is a Seq in both Scala 2.12 and 2.13. */
  public static scala.collection.immutable.List of(List items) {
    return ((scala.collection.Iterable) PythonUtils.toSeq(items)).toList();
  }

  /** The items of a collection of Scala's. */
  public static <T> List<T> from(scala.collection.Iterable<T> items) {
    return JavaConverters.seqAsJavaList(items.toSeq());
  }

  /** The nodes of a class in a plan or an expression, each before its children; without plans of subqueries. */
  public static <N> List<N> nodes(TreeNode tree, Class<N> type) {
    return from(tree.collect(new Change(new Instances(type))));
  }

  /** A map of keys and values, one after the other. */
  public static Map map(Object... entries) {
    Map map = new LinkedHashMap();
    for (int i = 0; i < entries.length; i += 2) {
      map.put(entries[i], entries[i + 1]);
    }
    return map;
  }

  /** A map that keeps the entries that were used last. */
  public static Map latest(int most) {
    return Collections.synchronizedMap(new LatestUsed(most));
  }

  private static class LatestUsed extends LinkedHashMap {
    private final int most;

    LatestUsed(int most) {
      super(16, 0.75f, true);
      this.most = most;
    }

    protected boolean removeEldestEntry(Map.Entry eldest) {
      return size() > most;
    }
  }

  /** Leaves each node of a class as it is. */
  private static class Instances implements Change.OfNode {
    private final Class<?> type;

    Instances(Class<?> type) {
      this.type = type;
    }

    public Object changed(Object node) {
      return type.isInstance(node) ? node : null;
    }
  }
}
