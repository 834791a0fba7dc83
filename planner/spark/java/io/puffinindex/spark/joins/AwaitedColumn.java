package io.puffinindex.spark.joins;

import io.puffinindex.spark.Lists;
import io.puffinindex.spark.Node;
import io.puffinindex.spark.ScanQuestion;
import io.puffinindex.spark.SparkParts;
import io.puffinindex.spark.conditions.Conditions;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.Schema;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.optimizer.PushDownPredicates;
import org.apache.spark.sql.catalyst.plans.logical.CollectMetrics;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.dynamicpruning.PartitionPruning;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;

/** A column whose values a join's other side, or a scalar subquery, tells once the query runs. */
public abstract class AwaitedColumn {
  /** Nodes that give the same rows each time; others, such as LIMIT, might give other rows. */
  private static final Set<String> REPEATABLE =
      Lists.words(
          "Project Filter Join Aggregate Union Distinct SubqueryAlias View Expand LocalRelation",
          "OneRowRelation Range DataSourceV2ScanRelation LogicalRelation Repartition",
          "RepartitionByExpression RebalancePartitions ResolvedHint");

  private static final String AGGREGATES = "org.apache.spark.sql.catalyst.expressions.aggregate.";
  private static final Set<String> REPEATABLE_AGGREGATES =
      Lists.words("AggregateExpression Min Max Count Sum");

  /** The scan; null if the attribute is no column of a scan. */
  public final Scan scan;

  public final Attribute column;
  public final String operator;

  /** The rows of the table that has the values, if that is a whole table; or null. */
  public Long rows;

  public String source;
  protected final LogicalPlan values;

  /** Whether another run of that plan gives the same rows, and so may tell the values. */
  protected final boolean isRepeatable;

  private final Attribute attribute;

  protected AwaitedColumn(
      Attribute attribute, LogicalPlan plan, LogicalPlan values, String operator, String source) {
    this.attribute = attribute;
    this.values = values;
    this.operator = operator;
    this.source = source;
    var found =
        attribute == null
            ? null
            : PartitionPruning.findExpressionAndTrackLineageDown(attribute, plan);
    boolean isColumn =
        found != null
            && found.isDefined()
            && found.get()._1() instanceof Attribute
            && found.get()._2() instanceof DataSourceV2ScanRelation
            // Metrics are of rows that the query itself computes.
            && Lists.nodes(values, CollectMetrics.class).isEmpty();
    column = isColumn ? (Attribute) found.get()._1() : null;
    scan = isColumn ? ((DataSourceV2ScanRelation) found.get()._2()).scan() : null;
    isRepeatable = scan != null && isRepeatable(values);
  }

  /** The plan with a filter that tells the values, as near to the scan as it may be. */
  public abstract LogicalPlan filtered(LogicalPlan plan);

  /** Whether the values can be told for a side of a scan. */
  protected boolean isTold(LogicalPlan side) {
    return scan != null && (isRepeatable || SmallSide.isCheaper(values, side));
  }

  public String name() {
    return RuntimeScan.filterName(column.name(), operator);
  }

  public boolean isTaken() {
    return RuntimeScan.takes(scan, name());
  }

  /** Nodes of columns by the names of their filters, as far as an index can be of a column. */
  public static Map<String, Node> nodes(Map<String, AwaitedColumn> filters, Schema schema) {
    Map<String, Node> nodes = new HashMap<>();
    for (AwaitedColumn filter : filters.values()) {
      String name = filter.column.name();
      String type = Conditions.nameOf(filter.column.dataType());
      Types.NestedField field = schema.asStruct().field(name);
      // A filter must not be taken for another one, should Spark lose its name.
      boolean isCertain =
          filter.operator.equals("=")
              || (!filters.containsKey(name) && schema.asStruct().field(filter.name()) == null);
      if (type != null && field != null && isCertain) {
        Node node = Node.of("field", field.fieldId(), "name", name, "type", type);
        nodes.put(
            filter.name(), node.with("operator", filter.operator).with("source", filter.source));
      }
    }
    return nodes;
  }

  /** This column, whose values another source tells as well. */
  public AwaitedColumn with(AwaitedColumn other) {
    source = source.equals(other.source) ? source : "join or subquery";
    rows = ScanQuestion.fewest(rows, other.rows);
    return this;
  }

  /**
   * A plan with a {@code DynamicPruningSubquery}, which becomes a runtime filter of the scan: Spark
   * itself makes them for partition columns only. One of the query's keys is compared; the filter
   * goes if there is to be a broadcast, and the query has none.
   */
  protected LogicalPlan filtered(
      LogicalPlan plan, LogicalPlan query, List<Expression> keys, int at, boolean onlyInBroadcast) {
    if (!plan.deterministic() && isRowByRow(plan)) {
      LogicalPlan child = plan.children().apply(0);
      if (child.outputSet().contains(attribute)) {
        LogicalPlan below = filtered(child, query, keys, at, onlyInBroadcast);
        return plan.withNewChildren(Lists.of(below));
      }
    }
    // The name reaches the scan and says how to compare; the attribute's ID counts.
    Attribute named = operator.equals("=") ? attribute : attribute.withName(name());
    DynamicPruningSubquery filter =
        SparkParts.made(
            DynamicPruningSubquery.class,
            named,
            query,
            Lists.of(keys),
            SparkParts.IS_3 ? (Object) at : Lists.of(at),
            onlyInBroadcast,
            NamedExpression$.MODULE$.newExprId());
    return PushDownPredicates.apply(new Filter(filter, plan));
  }

  /** Whether a plan does the same with fewer rows; MERGE's numbers of fewer rows do as well. */
  private static boolean isRowByRow(LogicalPlan plan) {
    return (plan instanceof Project || plan instanceof Filter)
        && Lists.from(plan.expressions()).stream()
            .allMatch(
                one ->
                    one.deterministic()
                        || (one instanceof Alias alias && alias.name().equals("__row_id")));
  }

  /** Whether a plan has an expression that waits for another plan. */
  protected static boolean hasSubquery(LogicalPlan plan) {
    return plan.containsPattern(TreePattern.PLAN_EXPRESSION());
  }

  private static boolean isRepeatable(LogicalPlan plan) {
    return Lists.nodes(plan, LogicalPlan.class).stream().allMatch(AwaitedColumn::isRepeatableNode);
  }

  private static boolean isRepeatableNode(LogicalPlan node) {
    return node.deterministic()
        && REPEATABLE.contains(node.getClass().getSimpleName())
        && !(node instanceof LogicalRelation logical
            && !(logical.relation() instanceof HadoopFsRelation))
        && !(node instanceof DataSourceV2ScanRelation read
            && !RuntimeScan.isOfSnapshot(read.scan()))
        && Lists.from(node.expressions()).stream()
            .flatMap(root -> Lists.nodes(root, Expression.class).stream())
            .noneMatch(AwaitedColumn::takesAnyRow);
  }

  /** Whether an expression that Spark calls deterministic may have another value next time. */
  private static boolean takesAnyRow(Expression expression) {
    String name = expression.getClass().getName();
    if (expression instanceof SubqueryExpression subquery) {
      return !isRepeatable(subquery.plan());
    }
    if (name.startsWith(AGGREGATES)) {
      String simple = name.substring(AGGREGATES.length());
      boolean isFloating =
          expression.dataType() instanceof DoubleType || expression.dataType() instanceof FloatType;
      return !REPEATABLE_AGGREGATES.contains(simple) || (simple.equals("Sum") && isFloating);
    }
    return name.contains("Python") || name.contains("ScalaUDF");
  }
}
