package io.puffinindex.spark.conditions;

import io.puffinindex.spark.Node;
import java.util.Base64;
import org.apache.spark.sql.catalyst.expressions.Contains;
import org.apache.spark.sql.catalyst.expressions.EndsWith;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Lower;
import org.apache.spark.sql.catalyst.expressions.RLike;
import org.apache.spark.sql.catalyst.expressions.Upper;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/** A search of a text, from which the planner learns what words the text must have. */
final class TextPattern {
  private TextPattern() {}

  /** The node of a condition that searches a column, or its lower or upper case; null if none. */
  static Node of(Expression condition) {
    String operator = null;
    char escape = '\\';
    if (condition instanceof Contains) {
      operator = "contains";
    } else if (condition instanceof EndsWith) {
      operator = "ends with";
    } else if (condition instanceof RLike) {
      operator = "RLIKE";
    } else if (condition instanceof Like like) {
      operator = "LIKE";
      escape = like.escapeChar();
    }
    if (operator == null
        || !(condition.children().apply(1) instanceof Literal literal)
        || !DataTypes.StringType.equals(literal.dataType())
        || !(literal.value() instanceof UTF8String text)) {
      return null;
    }
    Expression searched = condition.children().apply(0);
    String function =
        searched instanceof Lower ? "lower" : searched instanceof Upper ? "upper" : null;
    Expression column = function == null ? searched : searched.children().apply(0);
    String encoded = Base64.getEncoder().encodeToString(text.getBytes());
    return Conditions.isName(column) && DataTypes.StringType.equals(column.dataType())
        ? Node.of(
            "function", function,
            "operator", operator,
            "text", encoded,
            "escape", String.valueOf(escape))
        : null;
  }
}
