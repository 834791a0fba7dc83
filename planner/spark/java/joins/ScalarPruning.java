package io.puffinindex.spark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
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
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.Option;
import scala.Tuple2;

/**
 * Lets scans wait for the value of a scalar subquery that a filter compares an indexed column with ({@link
 * RuntimeFilters}).
 *
 * <p>The runtime filter's query is the subquery's own plan, with what the filter computes of the value on top. Both share
 * their shuffles, so Spark reads the subquery's tables once. The query must have no subquery itself: all subqueries of an
 * application run in one small pool of threads, and would wait there for one another.
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

  /** Find the columns of scans that scalar subqueries restrict. */
  public static void collect(LogicalPlan plan, List<AwaitedColumn> found) {
    if (plan instanceof Filter) {
      List comparisons = comparisons((Filter) plan);
      for (int i = 0; i < comparisons.size(); i++) {
        Comparison comparison = (Comparison) comparisons.get(i);
        found.add(new AwaitedColumn(comparison.found, comparison.operator, null, "subquery"));
      }
    }
    for (scala.collection.Iterator it = plan.children().iterator(); it.hasNext(); ) {
      collect((LogicalPlan) it.next(), found);
    }
  }

  /** The plan with runtime filters on the scans that take them. */
  public static LogicalPlan apply(LogicalPlan plan) {
    return (LogicalPlan) plan.transformUp(new Change(new InsertFilters()));
  }

  /** The comparisons of a filter: one at most for each column and operator. */
  private static List comparisons(Filter filter) {
    List comparisons = new ArrayList();
    collect(filter.condition(), filter, comparisons, new HashSet());
    return comparisons;
  }

  private static void collect(Expression condition, Filter filter, List comparisons, Set known) {
    if (condition instanceof And) {
      collect(((And) condition).left(), filter, comparisons, known);
      collect(((And) condition).right(), filter, comparisons, known);
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
    if (column instanceof Attribute && value.deterministic() && value.references().isEmpty()) {
      ScalarSubquery subquery = onlySubquery(value);
      Tuple2 found = subquery == null ? null : RuntimeFilters.find((Attribute) column, filter.child());
      String operator = operators[column == left ? 0 : 1];
      if (found != null && known.add(((Attribute) column).exprId() + operator)) {
        comparisons.add(new Comparison((Attribute) column, operator, value, subquery, found));
      }
    }
  }

  /** The only subquery of a value, if its plan may run once more for the value; else null. */
  private static ScalarSubquery onlySubquery(Expression value) {
    Set subqueries = new HashSet();
    addSubqueries(value, subqueries);
    Object one = subqueries.size() == 1 ? subqueries.iterator().next() : null;
    if (!(one instanceof ScalarSubquery) || ((ScalarSubquery) one).isCorrelated()) {
      return null;
    }
    LogicalPlan plan = ((ScalarSubquery) one).plan();
    boolean mayRun = RuntimeFilters.isRepeatable(plan) && !RuntimeFilters.hasSubquery(plan);
    return mayRun && (hasRow(plan) || isNullOfNull(value, (ScalarSubquery) one)) ? (ScalarSubquery) one : null;
  }

  private static void addSubqueries(Expression expression, Set subqueries) {
    if (expression instanceof SubqueryExpression) {
      subqueries.add(expression);
    }
    for (scala.collection.Iterator it = expression.children().iterator(); it.hasNext(); ) {
      addSubqueries((Expression) it.next(), subqueries);
    }
  }

  /** Whether a plan has a row whatever its tables have: an aggregate without groups. */
  private static boolean hasRow(LogicalPlan plan) {
    LogicalPlan node = plan;
    while (node instanceof Project) {
      node = ((Project) node).child();
    }
    return node instanceof Aggregate && ((Aggregate) node).groupingExpressions().isEmpty();
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
    return (Expression) value.transform(new Change(new Substitute(Collections.singleton(subquery), other)));
  }

  /** A comparison of an attribute with the value of a scalar subquery. */
  private static class Comparison {
    final Attribute attribute;
    final String operator;
    final Expression value;
    final ScalarSubquery subquery;
    final Tuple2 found;

    Comparison(Attribute attribute, String operator, Expression value, ScalarSubquery subquery, Tuple2 found) {
      this.attribute = attribute;
      this.operator = operator;
      this.value = value;
      this.subquery = subquery;
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
              withSubquery(value, subquery, (Attribute) subquery.plan().output().head()),
              "value",
              NamedExpression$.MODULE$.newExprId(),
              PythonUtils.toSeq(none),
              Option.empty(),
              PythonUtils.toSeq(none));
      LogicalPlan query = new Project(PythonUtils.toSeq(Collections.singletonList(key)), subquery.plan());
      // The filter's name reaches the scan and says how to compare. The attribute is the same: its ID counts.
      Attribute named = operator.equals("=") ? attribute : attribute.withName(name);
      return RuntimeFilters.filtered(plan, named, query, Collections.singletonList(key.toAttribute()), 0, false);
    }
  }

  /** Puts runtime filters above filters that compare with scalar subqueries. */
  private static class InsertFilters implements Change.OfNode {
    public Object changed(Object node) {
      if (!(node instanceof Filter)) {
        return null;
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
