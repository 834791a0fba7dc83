package io.puffinindex.spark.joins;

import io.puffinindex.spark.Lists;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import scala.Option;

/**
 * A column that a filter compares with the value of a scalar subquery.
 *
 * <p>The runtime filter's query is the subquery's own plan, with what the filter computes of the
 * value on top. Both share their shuffles, so Spark reads the subquery's tables once. The query
 * must have no subquery itself: all subqueries of an application run in one small pool of threads,
 * and would wait there for one another.
 */
final class ScalarComparison extends AwaitedColumn {
  /** The operator of each comparison with the column first, and with the column last. */
  private static final Map<Class<?>, List<String>> OPERATORS =
      Map.of(
          EqualTo.class, List.of("=", "="),
          LessThan.class, List.of("<", ">"),
          LessThanOrEqual.class, List.of("<=", ">="),
          GreaterThan.class, List.of(">", "<"),
          GreaterThanOrEqual.class, List.of(">=", "<="));

  private final Expression value;
  private final ScalarSubquery subquery;

  private ScalarComparison(
      Attribute column,
      LogicalPlan plan,
      String operator,
      Expression value,
      ScalarSubquery subquery) {
    super(column, plan, subquery.plan(), operator, "subquery");
    this.value = value;
    this.subquery = subquery;
  }

  /** The columns of scans that comparisons restrict: one for each column and operator. */
  static List<ScalarComparison> of(Filter filter) {
    Map<String, ScalarComparison> found = new LinkedHashMap<>();
    for (Expression condition : Lists.conjuncts(filter.condition())) {
      List<String> operators = OPERATORS.get(condition.getClass());
      if (operators == null) {
        continue;
      }
      Expression left = condition.children().apply(0);
      Expression right = condition.children().apply(1);
      boolean isLeft = left instanceof Attribute;
      Expression value = isLeft ? right : left;
      if ((isLeft ? left : right) instanceof Attribute column
          && value.deterministic()
          && value.references().isEmpty()) {
        String operator = operators.get(isLeft ? 0 : 1);
        ScalarSubquery subquery = onlySubquery(value);
        ScalarComparison comparison =
            subquery == null
                ? null
                : new ScalarComparison(column, filter.child(), operator, value, subquery);
        if (comparison != null && comparison.isTold(filter)) {
          found.putIfAbsent(column.exprId() + operator, comparison);
        }
      }
    }
    return new ArrayList<>(found.values());
  }

  /** A filter whose subquery is of rows that are known. */
  Filter withRows(Filter filter, LogicalPlan rows) {
    Expression known = subquery.withNewPlan(rows);
    return (Filter)
        filter.transformExpressions(Lists.change(node -> node.equals(subquery) ? known : null));
  }

  /** The only subquery of a value, if its plan may run once more for the value; else null. */
  private static ScalarSubquery onlySubquery(Expression value) {
    Set<SubqueryExpression> subqueries =
        new HashSet<>(Lists.nodes(value, SubqueryExpression.class));
    return subqueries.size() == 1
            && subqueries.iterator().next() instanceof ScalarSubquery one
            && !one.isCorrelated()
            && !hasSubquery(one.plan())
            && (hasRow(one.plan()) || isNullOfNull(value, one))
        ? one
        : null;
  }

  /** Whether a plan has a row whatever its tables have: an aggregate without groups. */
  private static boolean hasRow(LogicalPlan plan) {
    LogicalPlan node = plan;
    while (node instanceof Project project) {
      node = project.child();
    }
    return node instanceof LocalRelation relation
        ? !relation.data().isEmpty()
        : node instanceof Aggregate aggregate && aggregate.groupingExpressions().isEmpty();
  }

  /** Whether a value is NULL, and so compares with nothing, if its subquery has no row. */
  private static boolean isNullOfNull(Expression value, ScalarSubquery subquery) {
    try {
      return withSubquery(value, subquery, new Literal(null, subquery.dataType())).eval(null)
          == null;
    } catch (Exception e) {
      return false;
    }
  }

  /** A value with another expression in the place of its subquery. */
  private static Expression withSubquery(
      Expression value, ScalarSubquery subquery, Expression other) {
    return value.transform(Lists.change(node -> node.equals(subquery) ? other : null));
  }

  @Override
  public LogicalPlan filtered(LogicalPlan plan) {
    Expression computed = withSubquery(value, subquery, values.output().head());
    var id = NamedExpression$.MODULE$.newExprId();
    Alias key = new Alias(computed, "value", id, Lists.of(), Option.empty(), Lists.of());
    LogicalPlan query = new Project(Lists.of(key), values);
    return filtered(plan, query, List.of(key.toAttribute()), 0, false);
  }
}
