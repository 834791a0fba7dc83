package io.puffinindex.spark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.Function1;
import scala.Option;
import scala.Tuple2;
import scala.runtime.AbstractPartialFunction;

/**
 * Lets scans wait for the value of a scalar subquery that a filter compares an indexed column with ({@link RuntimeFilters}).
 * The runtime filter has the same subquery as the filter, and Spark runs equal subqueries once. Compiled by Janino: no
 * generics, no lambdas.
 */
public class ScalarPruning {
  /** The operator of each comparison with the column first, and with the column last. */
  private static final Map OPERATORS = new HashMap();

  static {
    OPERATORS.put(EqualTo.class, new String[] {"=", "="});
    OPERATORS.put(LessThan.class, new String[] {"<", ">"});
    OPERATORS.put(LessThanOrEqual.class, new String[] {"<=", ">="});
    OPERATORS.put(GreaterThan.class, new String[] {">", "<"});
    OPERATORS.put(GreaterThanOrEqual.class, new String[] {">=", "<="});
  }

  private ScalarPruning() {}

  /** The attributes of scans that scalar subqueries restrict: pairs of what {@code RuntimeFilters.find} has, and an operator. */
  public static void collect(LogicalPlan plan, List found) {
    if (plan instanceof Filter) {
      List comparisons = comparisons((Filter) plan);
      for (int i = 0; i < comparisons.size(); i++) {
        Comparison comparison = (Comparison) comparisons.get(i);
        found.add(new Object[] {comparison.found, comparison.operator});
      }
    }
    for (scala.collection.Iterator it = plan.children().iterator(); it.hasNext(); ) {
      collect((LogicalPlan) it.next(), found);
    }
  }

  /** The plan with runtime filters on the scans that take them. */
  public static LogicalPlan apply(LogicalPlan plan) {
    return (LogicalPlan) plan.transformUp(new InsertFilters());
  }

  private static List comparisons(Filter filter) {
    List comparisons = new ArrayList();
    collect(filter.condition(), filter, comparisons);
    return comparisons;
  }

  private static void collect(Expression condition, Filter filter, List comparisons) {
    if (condition instanceof And) {
      collect(((And) condition).left(), filter, comparisons);
      collect(((And) condition).right(), filter, comparisons);
      return;
    }
    String[] operators = (String[]) OPERATORS.get(condition.getClass());
    if (operators == null) {
      return;
    }
    Expression left = (Expression) condition.children().apply(0);
    Expression right = (Expression) condition.children().apply(1);
    Expression column = left instanceof Attribute ? left : right;
    Expression value = left instanceof Attribute ? right : left;
    if (column instanceof Attribute && isRepeatable(value)) {
      Tuple2 found = RuntimeFilters.find((Attribute) column, filter.child());
      if (found != null) {
        comparisons.add(new Comparison((Attribute) column, operators[column == left ? 0 : 1], value, found));
      }
    }
  }

  /** Whether an expression has a scalar subquery and no attribute, and has the same value each time. */
  private static boolean isRepeatable(Expression value) {
    return value.deterministic()
        && value.references().isEmpty()
        && SubqueryExpression.hasSubquery(value)
        && hasRepeatableSubqueries(value);
  }

  private static boolean hasRepeatableSubqueries(Expression expression) {
    if (expression instanceof SubqueryExpression) {
      return expression instanceof ScalarSubquery
          && !((ScalarSubquery) expression).isCorrelated()
          && RuntimeFilters.isRepeatable(((ScalarSubquery) expression).plan());
    }
    for (scala.collection.Iterator it = expression.children().iterator(); it.hasNext(); ) {
      if (!hasRepeatableSubqueries((Expression) it.next())) {
        return false;
      }
    }
    return true;
  }

  /** A comparison of an attribute with the value of a scalar subquery. */
  private static class Comparison {
    final Attribute attribute;
    final String operator;
    final Expression value;
    final Tuple2 found;

    Comparison(Attribute attribute, String operator, Expression value, Tuple2 found) {
      this.attribute = attribute;
      this.operator = operator;
      this.value = value;
      this.found = found;
    }

    LogicalPlan filtered(LogicalPlan plan) throws Exception {
      Object scan = ((DataSourceV2ScanRelation) found._2()).scan();
      String name = RuntimeScan.filterName(((Attribute) found._1()).name(), operator);
      if (!RuntimeScan.takes(scan, name)) {
        return plan;
      }
      List none = Collections.EMPTY_LIST;
      Alias key =
          new Alias(
              value,
              "value",
              NamedExpression$.MODULE$.newExprId(),
              PythonUtils.toSeq(none),
              Option.empty(),
              PythonUtils.toSeq(none));
      LogicalPlan query = new Project(PythonUtils.toSeq(Collections.singletonList(key)), new OneRowRelation());
      // The filter's name reaches the scan and says how to compare. The attribute is the same: its ID counts.
      Attribute named = operator.equals("=") ? attribute : attribute.withName(name);
      return RuntimeFilters.filtered(plan, named, query, Collections.singletonList(key.toAttribute()), 0, false);
    }
  }

  /** Puts runtime filters above filters that compare with scalar subqueries. */
  private static class InsertFilters extends AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return node instanceof Filter;
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
      if (!isDefinedAt(node)) {
        return otherwise.apply(node);
      }
      LogicalPlan plan = (LogicalPlan) node;
      List comparisons = comparisons((Filter) node);
      try {
        for (int i = 0; i < comparisons.size(); i++) {
          plan = ((Comparison) comparisons.get(i)).filtered(plan);
        }
      } catch (Exception e) {
        throw new IllegalStateException("no runtime filter for a scalar subquery: " + e.getMessage(), e);
      }
      return plan;
    }
  }
}
