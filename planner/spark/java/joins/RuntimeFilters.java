package io.puffinindex.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.dynamicpruning.CleanupDynamicPruningFilters;

/** Spark's own dynamic pruning for indexed columns: scans wait for keys of joins and values of scalar subqueries. */
public class RuntimeFilters {
  private RuntimeFilters() {}

  /** The columns of scans that joins and scalar subqueries can restrict once the query runs. */
  public static List awaited(LogicalPlan plan) {
    List found = new ArrayList();
    for (Join join : Lists.nodes(plan, Join.class)) {
      found.addAll(JoinKey.of(join));
    }
    for (Filter filter : Lists.nodes(plan, Filter.class)) {
      found.addAll(ScalarComparison.of(filter));
    }
    return found;
  }

  /** The plan with runtime filters on the scans that take them. */
  public static LogicalPlan apply(LogicalPlan plan) {
    LogicalPlan inserted = (LogicalPlan) plan.transformUp(new Change(new InsertFilters()));
    // A filter that does not get as far as its scan would be evaluated row by row.
    return (LogicalPlan) CleanupDynamicPruningFilters.apply(inserted);
  }

  /** The plan with a runtime filter for each of some columns. */
  private static LogicalPlan filtered(LogicalPlan plan, List awaited) {
    LogicalPlan filtered = plan;
    for (AwaitedColumn column : awaited) {
      try {
        filtered = column.isTaken() ? column.filtered(filtered) : filtered;
      } catch (Exception e) {
        throw new IllegalStateException("no runtime filter in " + plan.nodeName() + ": " + e.getMessage(), e);
      }
    }
    return filtered;
  }

  /** Puts runtime filters above filters that compare with scalar subqueries, and on one side of each join. */
  private static class InsertFilters implements Change.OfNode {
    public Object changed(Object node) {
      if (node instanceof Filter) {
        return filtered((LogicalPlan) node, ScalarComparison.of((Filter) node));
      }
      return node instanceof Join ? changed((Join) node) : null;
    }

    /** The larger side gets the filters, if both have a scan that takes them. */
    private static Object changed(Join join) {
      List left = new ArrayList();
      List right = new ArrayList();
      for (JoinKey key : JoinKey.of(join)) {
        if (key.isTaken()) {
          (key.side == join.left() ? left : right).add(key);
        }
      }
      boolean prunesLeft =
          right.isEmpty()
              || (!left.isEmpty() && JoinKey.bytes(join.left()).compareTo(JoinKey.bytes(join.right())) >= 0);
      LogicalPlan newLeft = prunesLeft ? filtered(join.left(), left) : join.left();
      LogicalPlan newRight = prunesLeft ? join.right() : filtered(join.right(), right);
      return newLeft == join.left() && newRight == join.right()
          ? null
          : join.copy(newLeft, newRight, join.joinType(), join.condition(), join.hint());
    }
  }
}
