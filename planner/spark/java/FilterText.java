package io.puffinindex.spark;

import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/** A filter as SQL text of Spark's own, for the audit of a scan. */
public class FilterText {
  private static final int MOST_CHARACTERS = 100000;

  private FilterText() {}

  /** The text of a filter, with columns by their names alone; null where the text would not mean the same elsewhere. */
  public static String of(Expression filter) {
    if (filter == null || !filter.deterministic() || !isPlain(filter)) {
      return null;
    }
    String text = ((Expression) filter.transform(new Change(new WithoutQualifiers()))).sql();
    return text.length() > MOST_CHARACTERS ? null : text;
  }

  /** Code of users runs in queries of users only, and a subquery has no text. */
  private static boolean isPlain(TreeNode node) {
    if (node instanceof UserDefinedExpression || node instanceof SubqueryExpression) {
      return false;
    }
    for (Iterator it = node.children().iterator(); it.hasNext(); ) {
      if (!isPlain((TreeNode) it.next())) {
        return false;
      }
    }
    return true;
  }

  private static class WithoutQualifiers implements Change.OfNode {
    public Object changed(Object node) {
      return node instanceof AttributeReference ? ((AttributeReference) node).withQualifier((Seq) Nil$.MODULE$) : null;
    }
  }
}
