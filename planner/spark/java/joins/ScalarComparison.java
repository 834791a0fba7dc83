package io.puffinindex.spark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.ExprId;
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
import org.apache.spark.sql.execution.dynamicpruning.PartitionPruning$;
import scala.Option;

/**
 * A column that a filter compares with the value of a scalar subquery.
 *
 * <p>The runtime filter's query is the subquery's own plan, with what the filter computes of the value on top. Both
 * share their shuffles, so Spark reads the subquery's tables once. The query must have no subquery itself: all
 * subqueries of an application run in one small pool of threads, and would wait there for one another.
 */
public class ScalarComparison extends AwaitedColumn {
  /** The operator of each comparison with the column first, and with the column last. */
  private static final Map OPERATORS =
      Lists.map(
          EqualTo.class, new String[] {"=", "="},
          LessThan.class, new String[] {"<", ">"},
          LessThanOrEqual.class, new String[] {"<=", ">="},
          GreaterThan.class, new String[] {">", "<"},
          GreaterThanOrEqual.class, new String[] {">=", "<="});

  private final Expression value;
  private final ScalarSubquery subquery;

  private ScalarComparison(
      Attribute column, LogicalPlan plan, String operator, Expression value, ScalarSubquery subquery) {
    super(column, plan, subquery.plan(), operator, "subquery");
    this.value = value;
    this.subquery = subquery;
  }

  /** The columns of scans that the comparisons of a filter can restrict: one at most for each column and operator. */
  public static List<ScalarComparison> of(Filter filter) {
    Map found = new LinkedHashMap();
    for (Expression condition :
        Lists.from(PartitionPruning$.MODULE$.splitConjunctivePredicates(filter.condition()))) {
      String[] operators = (String[]) OPERATORS.get(condition.getClass());
      Expression left = operators == null ? null : (Expression) condition.children().apply(0);
      Expression right = operators == null ? null : (Expression) condition.children().apply(1);
      Expression column = left instanceof Attribute ? left : right;
      Expression value = left instanceof Attribute ? right : left;
      if (column instanceof Attribute && value.deterministic() && value.references().isEmpty()) {
        String operator = operators[column == left ? 0 : 1];
        ScalarSubquery subquery = onlySubquery(value);
        ScalarComparison comparison =
            subquery == null
                ? null
                : new ScalarComparison((Attribute) column, filter.child(), operator, value, subquery);
        if (comparison != null && comparison.scan != null && comparison.mayRun(filter)) {
          found.putIfAbsent(((Attribute) column).exprId() + operator, comparison);
        }
      }
    }
    return new ArrayList(found.values());
  }

  private boolean mayRun(Filter filter) {
    return isRepeatable || SmallSide.isCheaper(values, filter);
  }

  /** A filter whose subquery is of rows that are known. */
  public Object withRows(Filter filter, LogicalPlan rows) {
    Set places = Collections.singleton(subquery);
    return filter.transformExpressions(new Change(new Change.Substitute(places, subquery.withNewPlan(rows))));
  }

  /** The only subquery of a value, if its plan may run once more for the value; else null. */
  private static ScalarSubquery onlySubquery(Expression value) {
    Set subqueries = new HashSet(Lists.nodes(value, SubqueryExpression.class));
    Object one = subqueries.size() == 1 ? subqueries.iterator().next() : null;
    if (!(one instanceof ScalarSubquery) || ((ScalarSubquery) one).isCorrelated()) {
      return null;
    }
    LogicalPlan plan = ((ScalarSubquery) one).plan();
    return !hasSubquery(plan) && (hasRow(plan) || isNullOfNull(value, (ScalarSubquery) one)) ? (ScalarSubquery) one : null;
  }

  /** Whether a plan has a row whatever its tables have: an aggregate without groups. */
  private static boolean hasRow(LogicalPlan plan) {
    LogicalPlan node = plan;
    while (node instanceof Project) {
      node = ((Project) node).child();
    }
    return node instanceof LocalRelation
        ? !((LocalRelation) node).data().isEmpty()
        : node instanceof Aggregate && ((Aggregate) node).groupingExpressions().isEmpty();
  }

  /** Whether a value is NULL, and so compares with nothing, if its subquery has no row. */
  private static boolean isNullOfNull(Expression value, ScalarSubquery subquery) {
    try {
      return withSubquery(value, subquery, new Literal(null, subquery.dataType())).eval((InternalRow) null) == null;
    } catch (Exception e) {
      return false;
    }
  }

  /** A value with another expression in the place of its subquery. */
  private static Expression withSubquery(Expression value, ScalarSubquery subquery, Expression other) {
    return (Expression) value.transform(new Change(new Change.Substitute(Collections.singleton(subquery), other)));
  }

  public LogicalPlan filtered(LogicalPlan plan) throws Exception {
    Expression computed = withSubquery(value, subquery, (Attribute) values.output().head());
    List none = Collections.EMPTY_LIST;
    ExprId id = NamedExpression$.MODULE$.newExprId();
    Alias key = new Alias(computed, "value", id, Lists.of(none), Option.empty(), Lists.of(none));
    LogicalPlan query = new Project(Lists.of(Collections.singletonList(key)), values);
    return filtered(plan, query, Collections.singletonList(key.toAttribute()), 0, false);
  }
}
