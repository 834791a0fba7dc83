package io.puffinindex.spark;

import io.puffinindex.spark.conditions.Conditions;
import org.apache.iceberg.Schema;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Descending$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NullsFirst$;
import org.apache.spark.sql.catalyst.expressions.Rank;
import org.apache.spark.sql.catalyst.expressions.RowNumber;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Offset;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.WindowGroupLimit;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;

/**
 * How many rows of a scan a query wants, and in what order: LIMIT right above a scan, or above its
 * filter, its projection and its sort. Of {@code rank() <= k} without partitions, Spark makes a
 * WindowGroupLimit.
 *
 * @param key what the rows are ordered by first, of columns of the scan; null if any rows will do,
 *     as is {@code order} then
 */
public record WantedRows(Scan scan, int rows, Expression key, SortOrder order) {
  /** The rows that a plan wants of a scan; null if the plan is no LIMIT above a scan. */
  public static WantedRows of(LogicalPlan plan) {
    if (plan instanceof WindowGroupLimit ranks) {
      return ofRank(ranks);
    }
    if (!(plan instanceof GlobalLimit global)) {
      return null;
    }
    LogicalPlan child = global.child() instanceof Offset offset ? offset.child() : global.child();
    // Below OFFSET, the local limit has the rows that are skipped as well.
    return child instanceof LocalLimit local
            && local.limitExpr() instanceof Literal literal
            && literal.value() instanceof Integer rows
        ? below(local.child(), rows, null)
        : null;
  }

  /** Rows that are equal to the last of the first ranks have its rank, and stay as well. */
  private static WantedRows ofRank(WindowGroupLimit plan) {
    // dense_rank() may want any number of rows.
    Class<?> rank = plan.rankLikeFunction().getClass();
    boolean isKnown = rank == Rank.class || rank == RowNumber.class;
    return isKnown && plan.partitionSpec().isEmpty() && !plan.orderSpec().isEmpty()
        ? below(plan.child(), plan.limit(), plan.orderSpec().head())
        : null;
  }

  private static WantedRows below(LogicalPlan plan, int rows, SortOrder order) {
    Expression key = order == null ? null : order.child();
    while (!(plan instanceof DataSourceV2ScanRelation)) {
      if (plan instanceof Project project) {
        key = key == null ? null : Lists.below(project.projectList()).apply(key);
        plan = project.child();
      } else if (plan instanceof Sort sort && order == null && sort.global()) {
        order = sort.order().head();
        key = order.child();
        plan = sort.child();
      } else if (plan instanceof Filter filter
          && filter.child() instanceof DataSourceV2ScanRelation
          // A condition that is not deterministic does not say which rows there are.
          && filter.condition().deterministic()) {
        plan = filter.child();
      } else {
        return null;
      }
    }
    return new WantedRows(((DataSourceV2ScanRelation) plan).scan(), rows, key, order);
  }

  /** The content of a request; null if no index can be of the column that orders the rows. */
  public Node node(scala.collection.Iterable<AttributeReference> output, Schema schema) {
    if (order == null) {
      return Node.of("rows", rows, "order", null);
    }
    Node found = new Conditions(null, output, schema, false).column(key);
    if (found == null) {
      return null;
    }
    Node column =
        Node.of(
            "field", found.get("field"),
            "name", found.path(),
            "type", found.type(),
            "descending", order.direction() == Descending$.MODULE$,
            "nulls_first", order.nullOrdering() == NullsFirst$.MODULE$);
    return Node.of("rows", rows, "order", column);
  }
}
