package io.puffinindex.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.ReturnAnswer;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;

/**
 * A plan that asks only whether there are rows: a LIMIT above a projection to literals, which Spark makes of EXISTS and
 * {@code isEmpty}. Its rows follow from the number of the rows below.
 */
public class ExistingRows {
  private static final int MOST_ROWS = 1000;

  /** The projection to literals. */
  public final Project project;
  /** The scan below. */
  public final DataSourceV2ScanRelation relation;
  /** The condition of a filter between, or null. */
  public final Expression filter;

  private final int limit;
  private final Object[] values;

  private ExistingRows(Project project, DataSourceV2ScanRelation relation, int limit, Object[] values) {
    this.project = project;
    this.relation = relation;
    filter = project.child() instanceof Filter ? ((Filter) project.child()).condition() : null;
    this.limit = limit;
    this.values = values;
  }

  /** What a plan asks; null if it asks for more than whether there are rows. */
  public static ExistingRows of(LogicalPlan plan) {
    LogicalPlan whole = plan instanceof ReturnAnswer ? ((ReturnAnswer) plan).child() : plan;
    LogicalPlan local = whole instanceof GlobalLimit ? ((GlobalLimit) whole).child() : null;
    LogicalPlan rows = local instanceof LocalLimit ? ((LocalLimit) local).child() : null;
    if (!(rows instanceof Project) || !(((LocalLimit) local).limitExpr() instanceof Literal)) {
      return null;
    }
    Object limit = ((Literal) ((LocalLimit) local).limitExpr()).value();
    List values = new ArrayList();
    for (NamedExpression named : Lists.from(((Project) rows).projectList())) {
      if (!(named instanceof Alias) || !(((Alias) named).child() instanceof Literal)) {
        return null;
      }
      values.add(((Literal) ((Alias) named).child()).value());
    }
    LogicalPlan child = ((Project) rows).child();
    LogicalPlan below = child instanceof Filter ? ((Filter) child).child() : child;
    boolean isFew = limit instanceof Integer && ((Integer) limit).intValue() <= MOST_ROWS;
    return isFew && below instanceof DataSourceV2ScanRelation
        ? new ExistingRows((Project) rows, (DataSourceV2ScanRelation) below, (Integer) limit, values.toArray())
        : null;
  }

  /** The rows of the plan, if its child has this many rows. */
  public List rows(long count) {
    List rows = new ArrayList();
    for (long i = 0; i < Math.min(count, (long) limit); i++) {
      rows.add(new GenericInternalRow((Object[]) values.clone()));
    }
    return rows;
  }
}
