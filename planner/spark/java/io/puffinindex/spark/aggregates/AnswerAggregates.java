package io.puffinindex.spark.aggregates;

import io.puffinindex.spark.Lists;
import io.puffinindex.spark.PruneScans;
import io.puffinindex.spark.ScanQuestion;
import io.puffinindex.spark.Settings;
import io.puffinindex.spark.SparkParts;
import io.puffinindex.spark.conditions.Conditions;
import io.puffinindex.spark.joins.RuntimeScan;
import io.puffinindex.spark.scans.IcebergScans;
import java.io.IOException;
import java.lang.ref.WeakReference;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;
import java.util.stream.LongStream;
import org.apache.iceberg.FileScanTask;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.planning.PhysicalOperation;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.ReturnAnswer;
import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.CoalesceExec;
import org.apache.spark.sql.execution.LocalTableScanExec;
import org.apache.spark.sql.execution.PlanLater;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.UnionExec;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;

/**
 * A planning strategy that answers aggregates of Iceberg scans from the index.
 *
 * <p>Spark plans an aggregate as a partial aggregate of rows and a final aggregate of buffers. This
 * strategy takes Spark's own plan and gives the final aggregate the buffers that the index has,
 * beside the partial aggregate of the row groups that still have to be read. After any failure,
 * Spark's plan stays as it was.
 */
public final class AnswerAggregates extends SparkStrategy {
  private static final int ANSWERS_REMEMBERED = 32;
  private static final int ROWS_REMEMBERED = 400000;
  private static final int MOST_EXISTING_ROWS = 1000;

  private final PruneScans rule;

  /** The latest answers, because adaptive execution plans an aggregate again. */
  private final Deque<Known> answers = new ArrayDeque<>();

  public AnswerAggregates(PruneScans rule) {
    this.rule = rule;
    rule.leaveAggregates(this::isAnswered);
  }

  /** Whether the index answers an aggregate, in part at least. */
  private boolean isAnswered(Aggregate aggregate) {
    try {
      return answered(aggregate) != null;
    } catch (Throwable e) {
      rule.tell("aggregate not answered from the index", e);
      return false;
    }
  }

  @Override
  public scala.collection.immutable.Seq<SparkPlan> apply(LogicalPlan plan) {
    List<SparkPlan> plans = new ArrayList<>();
    try {
      Answered answered =
          !rule.hasEnded() && plan instanceof Aggregate aggregate ? answered(aggregate) : null;
      if (answered != null) {
        rule.notes.add(answered.known.answer.note);
        SparkPlan buffers = buffers(answered, plan.children().head());
        Object partial = answered.partial;
        plans.add(answered.whole.transform(Lists.change(node -> node == partial ? buffers : null)));
      }
      SparkPlan rows = rule.hasEnded() ? null : existing(plan);
      if (rows != null) {
        plans.add(rows);
      }
    } catch (Throwable e) {
      rule.tell("not answered from the index", e);
    }
    return Lists.of(plans);
  }

  /**
   * The rows of a plan that asks only whether there are rows: a LIMIT above a projection to
   * literals, which Spark makes of EXISTS and {@code isEmpty}. Null if Spark has to read some.
   */
  private SparkPlan existing(LogicalPlan plan) throws Exception {
    LogicalPlan whole = plan instanceof ReturnAnswer answer ? answer.child() : plan;
    if (!(whole instanceof GlobalLimit global)
        || !(global.child() instanceof LocalLimit local)
        || !(local.child() instanceof Project project)
        || !(local.limitExpr() instanceof Literal literal
            && literal.value() instanceof Integer limit)
        || limit > MOST_EXISTING_ROWS) {
      return null;
    }
    List<Object> values = new ArrayList<>();
    for (var named : Lists.from(project.projectList())) {
      if (!(named instanceof Alias alias) || !(alias.child() instanceof Literal value)) {
        return null;
      }
      values.add(value.value());
    }
    Rows rows = rows(project);
    if (rows == null || !(rows.below instanceof DataSourceV2ScanRelation relation)) {
      return null;
    }
    // What a LIMIT has left is soon counted; without that, Spark soon meets a row.
    RuntimeScan limited = RuntimeScan.ofLimit(relation.scan());
    Conditions conditions =
        limited == null || isNotToBeAsked(limited.scan())
            ? null
            : conditions(rows.filters, relation, limited.scan());
    if (conditions == null) {
      return null;
    }
    ScanQuestion question = new ScanQuestion(limited.scan(), conditions);
    question.aggregates = AggregateQuestion.ofRows(conditions);
    Known known = answer(question, limited.tasks(), "some " + question.aggregates.key());
    if (known.rows == null || !known.answer.left(limited.tasks()).isEmpty()) {
      return null;
    }
    int count = (int) Math.min(LongStream.of(known.answer.rows).sum(), limit);
    rule.notes.add(known.answer.note);
    InternalRow row = new GenericInternalRow(values.toArray());
    return scan(
        Lists.from(project.output()), Collections.nCopies(count, row), question, known.answer);
  }

  private boolean isNotToBeAsked(Scan scan) {
    var settings = Settings.ofSession();
    return settings.says("aggregates", "false")
        || rule.planner.isNotToBeAsked(IcebergScans.table(scan), settings);
  }

  /** What the index gives for an aggregate; null if Spark has to read all rows. */
  private Answered answered(Aggregate aggregate) throws Exception {
    Rows rows = rows(aggregate.child());
    var projections = rows == null ? null : List.of(rows.substitution);
    if (rows != null && rows.below instanceof Expand expand) {
      // ROLLUP and CUBE make several rows of each. A filter of these rows is no filter of the scan.
      Rows below = rows.filters.isEmpty() ? rows(expand.child()) : null;
      projections =
          below == null ? null : projections(rows.substitution, expand, below.substitution);
      rows = below;
    }
    if (rows == null || !(rows.below instanceof DataSourceV2ScanRelation relation)) {
      return null;
    }
    Scan scan = relation.scan();
    if (!IcebergScans.isBatchScan(scan)
        || IcebergScans.isOfNoSnapshot(scan)
        || isNotToBeAsked(scan)) {
      return null;
    }
    SparkPlan whole = planned(aggregate);
    BaseAggregateExec partial = whole == null ? null : partial(whole);
    Conditions conditions = conditions(rows.filters, relation, scan);
    if (partial == null || conditions == null) {
      return null;
    }
    AggregateQuestion wanted = AggregateQuestion.of(partial, conditions, projections);
    List<FileScanTask> tasks = wanted == null ? List.of() : IcebergScans.tasks(scan);
    if (tasks.isEmpty()) {
      return null;
    }
    ScanQuestion question = new ScanQuestion(scan, conditions);
    question.aggregates = wanted;
    Known known = answer(question, tasks, wanted.key());
    return known.rows == null
        ? null
        : new Answered(whole, partial, question, known, known.answer.left(tasks));
  }

  /** What expressions of a plan are of the rows below, its filters, and what is below. */
  private record Rows(
      UnaryOperator<Expression> substitution, List<Expression> filters, LogicalPlan below) {}

  /** The projections, the filters and what is below them; null if a plan is something else. */
  private static Rows rows(LogicalPlan plan) {
    var found = PhysicalOperation.unapply(plan);
    if (found.isEmpty()) {
      return null;
    }
    var substitution = Lists.below(found.get()._1());
    return new Rows(substitution, Lists.from(found.get()._2()), found.get()._3());
  }

  /** An answer, and its rows of keys and buffers; both null if Spark has to read all rows. */
  private record Known(
      WeakReference<Scan> scan, String key, AggregateAnswer answer, List<InternalRow> rows) {
    int size() {
      return rows == null ? 0 : rows.size();
    }
  }

  /** An aggregate with Spark's plan, the part that reads rows, and the tasks still to be read. */
  private record Answered(
      SparkPlan whole,
      BaseAggregateExec partial,
      ScanQuestion question,
      Known known,
      List<FileScanTask> unread) {}

  private static SparkPlan planned(Aggregate aggregate) throws ReflectiveOperationException {
    Object strategy =
        SparkParts.of(SparkSession.active(), "sessionState", "planner", "Aggregation");
    var plans = ((SparkStrategy) strategy).apply(aggregate);
    return plans.isEmpty() ? null : plans.head();
  }

  /** The aggregate that reads rows; null if Spark plans something else between. */
  private static BaseAggregateExec partial(SparkPlan whole) {
    SparkPlan node = whole;
    while (node instanceof BaseAggregateExec aggregate && node.children().size() == 1) {
      node = node.children().head();
      if (node instanceof PlanLater) {
        return aggregate;
      }
    }
    return null;
  }

  /** The whole filter above a scan; null if the filter must see every row. */
  private static Conditions conditions(
      List<Expression> filters, DataSourceV2ScanRelation relation, Scan scan) {
    if (!filters.stream().allMatch(Expression::deterministic)) {
      return null;
    }
    Expression filter = filters.stream().reduce(And::new).orElse(null);
    return new Conditions(filter, relation.output(), IcebergScans.schema(scan), true);
  }

  /** What an expression is for each row that comes of one: above, in the new row, and below. */
  private static List<UnaryOperator<Expression>> projections(
      UnaryOperator<Expression> above, Expand expand, UnaryOperator<Expression> below) {
    List<Attribute> attributes = Lists.from(expand.output());
    List<UnaryOperator<Expression>> projections = new ArrayList<>();
    for (var expressions : Lists.from(expand.projections())) {
      Map<ExprId, Expression> row = new HashMap<>();
      for (int i = 0; i < attributes.size(); i++) {
        row.put(attributes.get(i).exprId(), expressions.apply(i));
      }
      var between = Lists.substitution(row);
      projections.add(expression -> below.apply(between.apply(above.apply(expression))));
    }
    return projections;
  }

  /** The answer and its rows; both null if Spark has to read all rows. */
  private Known answer(ScanQuestion question, List<FileScanTask> tasks, String key)
      throws IOException {
    synchronized (answers) {
      for (Known known : answers) {
        if (known.scan.get() == question.scan && known.key.equals(key)) {
          return known;
        }
      }
    }
    var answer = (AggregateAnswer) rule.ask(question, tasks);
    List<InternalRow> rows =
        answer == null
            ? null
            : new AggregateRows(question.aggregates, answer).rows(answer.left(tasks));
    if (answer != null && rows == null) {
      question.aggregates.isDeclined = true;
      rule.ask(question, tasks);
    }
    Known found = new Known(new WeakReference<>(question.scan), key, answer, rows);
    remember(found);
    return found;
  }

  /** Keep an answer, and as many of the earlier ones as memory has room for. */
  private void remember(Known latest) {
    synchronized (answers) {
      answers.removeIf(known -> known.scan.get() == null);
      while (answers.size() >= ANSWERS_REMEMBERED
          || (!answers.isEmpty()
              && answers.stream().mapToLong(Known::size).sum() + latest.size() > ROWS_REMEMBERED)) {
        answers.removeLast();
      }
      answers.addFirst(latest);
    }
  }

  /** The plan of buffers: those of the index, and those of the row groups that have to be read. */
  private SparkPlan buffers(Answered answered, LogicalPlan child) {
    SparkPlan partial = (SparkPlan) answered.partial;
    boolean isWhole = answered.unread.isEmpty();
    List<Attribute> attributes =
        Lists.from(partial.output()).stream()
            .map(column -> isWhole ? column : column.newInstance())
            .toList();
    Known known = answered.known;
    SparkPlan scan = scan(attributes, known.rows, answered.question, known.answer);
    if (isWhole) {
      // One partition needs no shuffle.
      return new CoalesceExec(1, scan);
    }
    var fewRows = known.answer.fewRows(answered.unread);
    IdentityHashMap<Scan, Scan> scans = new IdentityHashMap<>();
    scans.put(
        answered.question.scan,
        RuntimeScan.of(rule, answered.question, Map.of(), answered.unread, fewRows));
    SparkPlan rest = new PlanLater(RuntimeScan.inPlan(child, scans));
    return new UnionExec(Lists.of(partial.withNewChildren(Lists.of(rest)), scan));
  }

  /** A scan of rows that the driver has, with a name of its own in the text of plans. */
  private static SparkPlan scan(
      List<Attribute> attributes,
      List<InternalRow> rows,
      ScanQuestion question,
      AggregateAnswer answer) {
    var own = question.aggregates + " of " + question.table.name();
    var note = answer.note.isEmpty() ? own : answer.note.replaceFirst("^puffin-index: ", "");
    SparkPlan local =
        SparkParts.made(LocalTableScanExec.class, Lists.of(attributes), Lists.of(rows));
    return SparkParts.made(
        RDDScanExec.class,
        local.output(),
        local.execute(),
        "PuffinIndexAnswer (" + note + ") ",
        new UnknownPartitioning(0),
        Lists.of());
  }
}
