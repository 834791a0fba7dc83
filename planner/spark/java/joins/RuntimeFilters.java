package io.puffinindex.spark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationDef;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.WithCTE;
import org.apache.spark.sql.execution.dynamicpruning.CleanupDynamicPruningFilters;
import scala.Option;

/** Spark's own dynamic pruning for indexed columns: scans wait for keys of joins and values of scalar subqueries. */
public class RuntimeFilters {
  private RuntimeFilters() {}

  /**
   * The columns of scans that joins can restrict once the query runs.
   *
   * @param ofSubqueries whether to add those that scalar subqueries can restrict
   */
  public static List<AwaitedColumn> awaited(LogicalPlan plan, boolean ofSubqueries) {
    List<AwaitedColumn> found = new ArrayList();
    for (Join join : Lists.nodes(plan, Join.class)) {
      found.addAll(JoinKey.of(join));
    }
    if (ofSubqueries) {
      for (Filter filter : Lists.nodes(plan, Filter.class)) {
        found.addAll(ScalarComparison.of(filter));
      }
    }
    return found;
  }

  /**
   * The plan with runtime filters on the scans that take them.
   *
   * @param isSubquery whether the plan is a subquery's
   */
  public static LogicalPlan apply(LogicalPlan plan, boolean isSubquery) {
    SmallSide small = new SmallSide();
    LogicalPlan whole = withMerged(plan);
    LogicalPlan inserted = (LogicalPlan) whole.transformUp(new Change(new InsertFilters(isSubquery, small)));
    inserted = small.consistent(inserted);
    // A filter that does not get as far as its scan would be evaluated row by row.
    return (LogicalPlan) CleanupDynamicPruningFilters.apply(inserted);
  }

  /** The plan with scalar subqueries that Spark has merged in the place of references to them, as Spark does later. */
  private static LogicalPlan withMerged(LogicalPlan plan) {
    Map merged = new HashMap();
    for (WithCTE with : Lists.nodes(plan, WithCTE.class)) {
      for (CTERelationDef relation : Lists.from(with.cteDefs())) {
        if (relation.underSubquery()) {
          merged.put(Long.valueOf(relation.id()), relation.child());
        }
      }
    }
    return merged.isEmpty()
        ? plan
        : (LogicalPlan) plan.transformAllExpressions(new Change(new InsertMerged(merged)));
  }

  /** Puts plans in the place of references. */
  private static class InsertMerged implements Change.OfNode {
    private final Map merged;

    InsertMerged(Map merged) {
      this.merged = merged;
    }

    public Object changed(Object node) {
      Object plan = node instanceof ScalarSubquery ? ((ScalarSubquery) node).plan() : null;
      Object own = plan instanceof CTERelationRef ? merged.get(Long.valueOf(((CTERelationRef) plan).cteId())) : null;
      return own == null ? null : ((ScalarSubquery) node).withNewPlan((LogicalPlan) own);
    }
  }

  /** The plan with a runtime filter for each of some columns. */
  private static LogicalPlan filtered(LogicalPlan plan, List<? extends AwaitedColumn> awaited) throws Exception {
    LogicalPlan filtered = plan;
    for (AwaitedColumn column : awaited) {
      filtered = column.isTaken() ? column.filtered(filtered) : filtered;
    }
    return filtered;
  }

  /** Puts runtime filters above filters that compare with scalar subqueries, and on one side of each join. */
  private static class InsertFilters implements Change.OfNode {
    private final boolean isSubquery;
    private final SmallSide small;

    InsertFilters(boolean isSubquery, SmallSide small) {
      this.isSubquery = isSubquery;
      this.small = small;
    }

    public Object changed(Object node) {
      try {
        if (node instanceof Filter) {
          return changed((Filter) node);
        }
        return node instanceof Join ? changed((Join) node) : null;
      } catch (Exception e) {
        throw new IllegalStateException("no runtime filter in " + ((LogicalPlan) node).nodeName() + ": " + e, e);
      }
    }

    private Object changed(Filter filter) throws Exception {
      for (ScalarComparison comparison : ScalarComparison.of(filter)) {
        if (comparison.isTaken() && !comparison.isRepeatable) {
          LogicalPlan rows = small.rows(comparison.values, filter);
          return rows == null ? null : changed((Filter) comparison.withRows(filter, rows));
        }
      }
      return filtered(filter, ScalarComparison.of(filter));
    }

    /** The larger side gets the filters, if both have a scan that takes them. */
    private Object changed(Join node) throws Exception {
      Join join = isSubquery ? withoutCasts(node) : node;
      List left = new ArrayList();
      List right = new ArrayList();
      for (JoinKey key : JoinKey.of(join)) {
        key.isInSubquery = isSubquery;
        if (key.isTaken() && !(isSubquery && key.isCast())) {
          (key.side == join.left() ? left : right).add(key);
        }
      }
      boolean prunesLeft =
          right.isEmpty()
              || (!left.isEmpty() && SmallSide.bytes(join.left()).compareTo(SmallSide.bytes(join.right())) >= 0);
      List<JoinKey> keys = prunesLeft ? left : right;
      for (JoinKey key : keys) {
        if (!key.isRepeatable && !key.isOfBroadcast(join)) {
          LogicalPlan rows = small.rows(key.values, key.side);
          if (rows == null) {
            return null;
          }
          return changed(prunesLeft ? copy(join, join.left(), rows) : copy(join, rows, join.right()));
        }
      }
      LogicalPlan newLeft = prunesLeft ? filtered(join.left(), left) : join.left();
      LogicalPlan newRight = prunesLeft ? join.right() : filtered(join.right(), right);
      return copy(join, newLeft, newRight);
    }

    /** A join that also compares columns that it compares casts of: only broadcasts of the join tell their keys. */
    private static Join withoutCasts(Join join) {
      Option condition = join.condition();
      for (JoinKey key : JoinKey.of(join)) {
        if (key.isCast() && key.isTaken()) {
          condition = Option.apply(new And((Expression) condition.get(), key.uncast()));
        }
      }
      return join.copy(join.left(), join.right(), join.joinType(), condition, join.hint());
    }

    private static Join copy(Join join, LogicalPlan left, LogicalPlan right) {
      return join.copy(left, right, join.joinType(), join.condition(), join.hint());
    }
  }
}
