package io.puffinindex.spark;

import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;

/** Puts what projections compute in the place of the attributes that they name. Compiled by Janino: no generics, no lambdas. */
public class Replace extends AbstractPartialFunction {
  private final Map expressions;

  /** @param expressions by the ID of the attribute */
  public Replace(Map expressions) {
    this.expressions = expressions;
  }

  public boolean isDefinedAt(Object expression) {
    return expression instanceof Attribute && expressions.containsKey(((Attribute) expression).exprId());
  }

  public Object applyOrElse(Object expression, Function1 otherwise) {
    return isDefinedAt(expression) ? expressions.get(((Attribute) expression).exprId()) : otherwise.apply(expression);
  }
}
