package io.puffinindex.spark;

import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count$;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.ReturnAnswer;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.types.DataTypes;
import scala.Option;

/**
 * A plan that asks only whether there are rows: a LIMIT above a projection to literals, which Spark makes of EXISTS and
 * {@code isEmpty}. Its rows follow from the number of the rows below.
 */
public class ExistingRows {
  private static final int MOST_ROWS = 1000;

  /** The projection to literals. */
  public final Project project;
  /** The tasks that the LIMIT has left of the scan below; null if it has not. */
  public final List tasks;

  /** The scan below; null if there is something else than a filter between. */
  private final Scan scan;

  private final int limit;
  private final Object[] values;

  private ExistingRows(Project project, int limit, Object[] values) {
    this.project = project;
    LogicalPlan below = project.child() instanceof Filter ? ((Filter) project.child()).child() : project.child();
    scan = below instanceof DataSourceV2ScanRelation ? ((DataSourceV2ScanRelation) below).scan() : null;
    tasks = scan == null ? null : RuntimeScan.tasksOfLimit(scan);
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
    boolean isFew = limit instanceof Integer && ((Integer) limit).intValue() <= MOST_ROWS;
    return isFew ? new ExistingRows((Project) rows, ((Integer) limit).intValue(), values.toArray()) : null;
  }

  /** The number of the rows below as an aggregate of the whole scan; of these rows, only those of the tasks count. */
  public Aggregate count() throws Exception {
    // The constructor takes a hint, too, since Spark 4.0.
    Constructor constructor = Aggregate.class.getConstructors()[0];
    Object[] arguments = new Object[constructor.getParameterTypes().length];
    Arrays.fill(arguments, Option.empty());
    AggregateFunction function = Count$.MODULE$.apply(new Literal(Integer.valueOf(1), DataTypes.IntegerType));
    Alias count =
        new Alias(
            function.toAggregateExpression(),
            "count",
            NamedExpression$.MODULE$.newExprId(),
            PythonUtils.toSeq(Collections.EMPTY_LIST),
            Option.empty(),
            PythonUtils.toSeq(Collections.EMPTY_LIST));
    arguments[0] = Lists.of(Collections.EMPTY_LIST);
    arguments[1] = Lists.of(Collections.singletonList(count));
    Map scans = new IdentityHashMap();
    scans.put(scan, RuntimeScan.whole(scan));
    arguments[2] = project.child().transform(new Change(new PruneScans.ReplaceScans(scans)));
    return (Aggregate) constructor.newInstance(arguments);
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
