package io.puffinindex.spark.aggregates;

import io.puffinindex.spark.Lists;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.LongStream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.ReturnAnswer;

/**
 * A plan that asks only whether there are rows: a LIMIT above a projection to literals, which Spark
 * makes of EXISTS and {@code isEmpty}. Its rows follow from the number of the rows below.
 *
 * @param project the projection to literals
 */
record ExistingRows(Project project, int limit, List<Object> values) {
  private static final int MOST_ROWS = 1000;

  /** What a plan asks; null if it asks for more than whether there are rows. */
  static ExistingRows of(LogicalPlan plan) {
    LogicalPlan whole = plan instanceof ReturnAnswer answer ? answer.child() : plan;
    if (!(whole instanceof GlobalLimit global)
        || !(global.child() instanceof LocalLimit local)
        || !(local.child() instanceof Project project)
        || !(local.limitExpr() instanceof Literal literal
            && literal.value() instanceof Integer limit)
        || limit > MOST_ROWS) {
      return null;
    }
    List<Object> values = new ArrayList<>();
    for (var named : Lists.from(project.projectList())) {
      if (!(named instanceof Alias alias) || !(alias.child() instanceof Literal value)) {
        return null;
      }
      values.add(value.value());
    }
    return new ExistingRows(project, limit, values);
  }

  /** The rows of the plan, if its child has this many rows. */
  List<InternalRow> rows(long count) {
    return LongStream.range(0, Math.min(count, limit))
        .<InternalRow>mapToObj(i -> new GenericInternalRow(values.toArray()))
        .toList();
  }
}
