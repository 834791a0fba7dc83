package io.puffinindex.spark;

import java.lang.reflect.Constructor;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.DynamicPruning;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.optimizer.PushDownPredicates;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.dynamicpruning.PartitionPruning;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import scala.Option;
import scala.Tuple2;

/**
 * Spark's own dynamic pruning for indexed columns: a filter {@code DynamicPruningSubquery} above a scan becomes a runtime
 * filter of the scan. Spark itself does this for partition columns only.
 */
public class RuntimeFilters {
  /** Nodes that give the same rows each time. A node of another class, such as LIMIT, might give other rows. */
  private static final List REPEATABLE =
      Arrays.asList(
          new Object[] {
            "Project", "Filter", "Join", "Aggregate", "Union", "Distinct", "SubqueryAlias", "View", "Expand",
            "LocalRelation", "OneRowRelation", "Range", "DataSourceV2ScanRelation", "LogicalRelation", "Repartition",
            "RepartitionByExpression", "RebalancePartitions", "ResolvedHint"
          });

  private RuntimeFilters() {}

  /** The attribute of a scan that an attribute of a plan is, and the scan's relation; null if there is no such scan. */
  public static Tuple2 find(Attribute attribute, LogicalPlan side) {
    Option found = PartitionPruning.findExpressionAndTrackLineageDown(attribute, side);
    if (found.isEmpty()) {
      return null;
    }
    Tuple2 pair = (Tuple2) found.get();
    return pair._1() instanceof Attribute && pair._2() instanceof DataSourceV2ScanRelation ? pair : null;
  }

  /**
   * A plan with a filter as near to the scan as it may be: an attribute has one of the values that a query gives.
   *
   * @param keys of the query; the one at a position is compared with the attribute
   * @param onlyInBroadcast whether to do without the filter if no broadcast of the query is there to be used
   */
  public static LogicalPlan filtered(
      LogicalPlan plan, Attribute attribute, LogicalPlan query, List keys, int at, boolean onlyInBroadcast)
      throws Exception {
    Constructor constructor = DynamicPruningSubquery.class.getConstructors()[0];
    Integer position = Integer.valueOf(at);
    // Spark 4 takes several indices of keys where Spark 3.5 takes one.
    Object index =
        constructor.getParameterTypes()[3] == int.class
            ? (Object) position
            : PythonUtils.toSeq(Collections.singletonList(position));
    Object[] arguments = {
      attribute, query, PythonUtils.toSeq(keys), index, Boolean.valueOf(onlyInBroadcast),
      NamedExpression$.MODULE$.newExprId(), Option.empty()
    };
    return (LogicalPlan) PushDownPredicates.apply(new Filter((Expression) constructor.newInstance(arguments), plan));
  }

  /** Whether a plan has an expression that waits for another plan. */
  public static boolean hasSubquery(LogicalPlan plan) {
    return plan.containsPattern(TreePattern.PLAN_EXPRESSION());
  }

  /** The plan without its runtime filters, which leave out only rows that a join leaves out as well. */
  public static LogicalPlan unfiltered(LogicalPlan plan) {
    return (LogicalPlan) plan.transformAllExpressions(new Change(new TrueForPruning()));
  }

  /** Whether another run of a plan gives the same rows: the keys may come from a run of their own. */
  public static boolean isRepeatable(LogicalPlan plan) {
    if (!plan.deterministic() || !REPEATABLE.contains(plan.getClass().getSimpleName()) || takesAnyRow(plan)) {
      return false;
    }
    if (plan instanceof LogicalRelation && !(((LogicalRelation) plan).relation() instanceof HadoopFsRelation)) {
      return false;
    }
    if (plan instanceof DataSourceV2ScanRelation && !RuntimeScan.isOfSnapshot(((DataSourceV2ScanRelation) plan).scan())) {
      return false;
    }
    for (scala.collection.Iterator it = plan.children().iterator(); it.hasNext(); ) {
      if (!isRepeatable((LogicalPlan) it.next())) {
        return false;
      }
    }
    return true;
  }

  /** Whether a node has an expression that may have another value next time, although Spark calls it deterministic. */
  private static boolean takesAnyRow(LogicalPlan plan) {
    for (scala.collection.Iterator it = plan.expressions().iterator(); it.hasNext(); ) {
      if (takesAnyRow((Expression) it.next())) {
        return true;
      }
    }
    return false;
  }

  private static boolean takesAnyRow(Expression expression) {
    if (expression instanceof SubqueryExpression) {
      return !isRepeatable((LogicalPlan) ((SubqueryExpression) expression).plan());
    }
    String name = expression.getClass().getName();
    if (name.startsWith("org.apache.spark.sql.catalyst.expressions.aggregate.")) {
      String simple = name.substring(name.lastIndexOf('.') + 1);
      boolean isKnown =
          simple.equals("AggregateExpression") || simple.equals("Min") || simple.equals("Max") || simple.equals("Count");
      if (!isKnown && !(simple.equals("Sum") && !isFloating(expression.dataType()))) {
        return true;
      }
    } else if (name.contains("Python") || name.contains("ScalaUDF")) {
      return true;
    }
    for (scala.collection.Iterator it = expression.children().iterator(); it.hasNext(); ) {
      if (takesAnyRow((Expression) it.next())) {
        return true;
      }
    }
    return false;
  }

  /** Puts true in the place of runtime filters. */
  private static class TrueForPruning implements Change.OfNode {
    public Object changed(Object expression) {
      return expression instanceof DynamicPruning ? Literal$.MODULE$.TrueLiteral() : null;
    }
  }

  private static boolean isFloating(DataType type) {
    return type instanceof DoubleType || type instanceof FloatType;
  }
}
