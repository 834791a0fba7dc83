package io.puffinindex.spark.joins;

import io.puffinindex.spark.Lists;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.WithCTE;
import org.apache.spark.sql.execution.dynamicpruning.CleanupDynamicPruningFilters;
import scala.Option;

/** Dynamic pruning of indexed columns: scans wait for keys of joins and values of subqueries. */
public final class RuntimeFilters {
  private final boolean isSubquery;
  private final SmallSide small = new SmallSide();

  private RuntimeFilters(boolean isSubquery) {
    this.isSubquery = isSubquery;
  }

  /** The columns that joins, and scalar subqueries if wanted, restrict once the query runs. */
  public static List<AwaitedColumn> awaited(LogicalPlan plan, boolean ofSubqueries) {
    List<AwaitedColumn> found = new ArrayList<>();
    Lists.nodes(plan, Join.class).forEach(join -> found.addAll(JoinKey.of(join)));
    if (ofSubqueries) {
      Lists.nodes(plan, Filter.class).forEach(filter -> found.addAll(ScalarComparison.of(filter)));
    }
    return found;
  }

  public static LogicalPlan apply(LogicalPlan plan, boolean isSubquery) {
    RuntimeFilters filters = new RuntimeFilters(isSubquery);
    LogicalPlan inserted = withMerged(plan).transformUp(Lists.change(filters::changed));
    // A filter that does not get as far as its scan would be evaluated row by row.
    return CleanupDynamicPruningFilters.apply(filters.small.consistent(inserted));
  }

  /** The plan with merged scalar subqueries in the place of references, as Spark does later. */
  private static LogicalPlan withMerged(LogicalPlan plan) {
    Map<Long, LogicalPlan> merged = new HashMap<>();
    for (WithCTE with : Lists.nodes(plan, WithCTE.class)) {
      for (var relation : Lists.from(with.cteDefs())) {
        if (relation.underSubquery()) {
          merged.put(relation.id(), relation.child());
        }
      }
    }
    return merged.isEmpty()
        ? plan
        : plan.transformAllExpressions(
            Lists.change(
                node ->
                    node instanceof ScalarSubquery scalar
                            && scalar.plan() instanceof CTERelationRef reference
                            && merged.containsKey(reference.cteId())
                        ? scalar.withNewPlan(merged.get(reference.cteId()))
                        : null));
  }

  /** The plan with a runtime filter for each of some columns. */
  private static LogicalPlan filtered(LogicalPlan plan, List<? extends AwaitedColumn> awaited) {
    LogicalPlan filtered = plan;
    for (AwaitedColumn column : awaited) {
      filtered = column.isTaken() ? column.filtered(filtered) : filtered;
    }
    return filtered;
  }

  /** A filter or a join with runtime filters; null if the node stays. */
  private LogicalPlan changed(LogicalPlan node) {
    if (node instanceof Filter filter) {
      return changed(filter);
    }
    return node instanceof Join join ? changed(join) : null;
  }

  private LogicalPlan changed(Filter filter) {
    for (ScalarComparison comparison : ScalarComparison.of(filter)) {
      if (comparison.isTaken() && !comparison.isRepeatable) {
        LogicalPlan rows = small.rows(comparison.values, filter);
        return rows == null ? null : changed(comparison.withRows(filter, rows));
      }
    }
    return filtered(filter, ScalarComparison.of(filter));
  }

  /** The larger side gets the filters, if both have a scan that takes them. */
  private LogicalPlan changed(Join node) {
    Join join = isSubquery ? withoutCasts(node) : node;
    List<JoinKey> left = new ArrayList<>();
    List<JoinKey> right = new ArrayList<>();
    for (JoinKey key : JoinKey.of(join)) {
      key.isInSubquery = isSubquery;
      if (key.isTaken() && !(isSubquery && key.isCast())) {
        (key.side == join.left() ? left : right).add(key);
      }
    }
    boolean prunesLeft =
        right.isEmpty()
            || (!left.isEmpty() && SmallSide.bytes(join.left()) >= SmallSide.bytes(join.right()));
    for (JoinKey key : prunesLeft ? left : right) {
      if (!key.isRepeatable && !key.isOfBroadcast(join)) {
        LogicalPlan rows = small.rows(key.values, key.side);
        if (rows == null) {
          return null;
        }
        return changed(prunesLeft ? copy(join, join.left(), rows) : copy(join, rows, join.right()));
      }
    }
    return prunesLeft
        ? copy(join, filtered(join.left(), left), join.right())
        : copy(join, join.left(), filtered(join.right(), right));
  }

  /** A join that also compares columns whose casts it compares: only broadcasts tell their keys. */
  private static Join withoutCasts(Join join) {
    Option<Expression> condition = join.condition();
    for (JoinKey key : JoinKey.of(join)) {
      if (key.isCast() && key.isTaken()) {
        condition = Option.apply(new And(condition.get(), key.uncast()));
      }
    }
    return join.copy(join.left(), join.right(), join.joinType(), condition, join.hint());
  }

  private static Join copy(Join join, LogicalPlan left, LogicalPlan right) {
    return join.copy(left, right, join.joinType(), join.condition(), join.hint());
  }
}
