package io.puffinindex.spark;

import java.util.Collections;
import java.util.List;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.Option;
import scala.collection.JavaConverters;

/** Scala's lists, and lists of the nodes of plans and expressions. */
public class Lists {
  private Lists() {}

  /** An immutable list, which is a Seq in both Scala 2.12 and 2.13. */
  public static scala.collection.immutable.List of(List items) {
    return ((scala.collection.Iterable) PythonUtils.toSeq(items)).toList();
  }

  /** The items of a collection of Scala's. */
  public static List from(scala.collection.Iterable items) {
    return JavaConverters.seqAsJavaList(items.toSeq());
  }

  /** The nodes of a class in a plan or an expression, each before its children. Plans of subqueries are not looked at. */
  public static List nodes(TreeNode tree, Class<?> type) {
    return from(tree.collect(new Change(new Instances(type))));
  }

  /** A named expression with an ID of its own. */
  public static Alias alias(Expression expression, String name) {
    ExprId id = NamedExpression$.MODULE$.newExprId();
    List none = Collections.EMPTY_LIST;
    return new Alias(expression, name, id, of(none), Option.empty(), of(none));
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
