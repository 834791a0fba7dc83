package io.puffinindex.spark;

import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;
import org.apache.iceberg.FileScanTask;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.planning.PhysicalOperation;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
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
import scala.Option;
import scala.Tuple3;

/**
 * A planning strategy that answers aggregates of Iceberg scans from the index.
 *
 * <p>Spark plans an aggregate as a partial aggregate of rows and a final aggregate of buffers. This strategy takes
 * Spark's own plan and gives the final aggregate the buffers that the index has, beside the partial aggregate of the
 * row groups that still have to be read. After any failure, Spark's plan stays as it was.
 */
public class AnswerAggregates extends SparkStrategy implements Predicate {
  private static final int ANSWERS_REMEMBERED = 32;
  private static final int ROWS_REMEMBERED = 400000;

  private final PruneScans rule;
  /** The latest answers, because adaptive execution plans an aggregate again. */
  private final List<Known> answers = new LinkedList();

  public AnswerAggregates(PruneScans rule) {
    this.rule = rule;
    rule.leaveAggregates(this);
  }

  /** The same strategy for another session. */
  public AnswerAggregates of(PruneScans rule) {
    return new AnswerAggregates(rule);
  }

  /** Whether the index answers an aggregate, in part at least. */
  public boolean test(Object aggregate) {
    try {
      Answered answered = answered((Aggregate) aggregate);
      return answered != null;
    } catch (Throwable e) {
      rule.tell("aggregate not answered from the index", e);
      return false;
    }
  }

  public scala.collection.immutable.Seq apply(LogicalPlan plan) {
    List plans = new ArrayList();
    try {
      ExistingRows existing = rule.hasEnded() ? null : ExistingRows.of(plan);
      SparkPlan rows = existing == null ? null : answered(existing);
      if (rows != null) {
        plans.add(rows);
      }
      Answered answered = rule.hasEnded() || !(plan instanceof Aggregate) ? null : answered((Aggregate) plan);
      if (answered != null) {
        rule.note(answered.answer.note);
        plans.add(replaced(answered.whole, answered.partial, replacement(answered, ((Aggregate) plan).child())));
      }
    } catch (Throwable e) {
      rule.tell("not answered from the index", e);
    }
    return Lists.of(plans);
  }

  /** The rows of a plan that asks whether there are rows; null if Spark has to read some to tell. */
  private SparkPlan answered(ExistingRows existing) throws Exception {
    // What a LIMIT has left is soon counted; without that, Spark soon meets a row.
    List tasks = RuntimeScan.tasksOfLimit(existing.relation.scan());
    if (tasks == null) {
      return null;
    }
    Scan scan = RuntimeScan.whole(existing.relation.scan());
    List filters = existing.filter == null ? Collections.EMPTY_LIST : Arrays.asList(existing.filter);
    Conditions conditions = rule.isNotToBeAsked(scan) ? null : conditions(filters, existing.relation, scan);
    Answered answered = new Answered();
    if (conditions == null
        || !ask(answered, scan, conditions, AggregateQuestion.ofRows(conditions), tasks, "some ")
        || !answered.unread.isEmpty()) {
      return null;
    }
    long count = 0;
    for (long rows : answered.answer.rows) {
      count += rows;
    }
    rule.note(answered.answer.note);
    return named(local(Lists.from(existing.project.output()), existing.rows(count)), answered.name());
  }

  /** What the index gives for an aggregate; null if Spark has to read all rows. */
  private Answered answered(Aggregate aggregate) throws Exception {
    Tuple3 rows = rows(aggregate.child());
    Expand expand = rows != null && rows._3() instanceof Expand ? (Expand) rows._3() : null;
    Map above = Collections.EMPTY_MAP;
    if (expand != null) {
      // ROLLUP and CUBE make several rows of each. A filter of these rows is no filter of the scan.
      above = aliases((scala.collection.Iterable) rows._1());
      rows = ((scala.collection.Seq) rows._2()).isEmpty() ? rows(expand.child()) : null;
    }
    if (rows == null || !(rows._3() instanceof DataSourceV2ScanRelation)) {
      return null;
    }
    DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) rows._3();
    Scan scan = relation.scan();
    if (!ScanTasks.isBatchScan(scan) || ScanQuestion.isOfNoSnapshot(scan) || rule.isNotToBeAsked(scan)) {
      return null;
    }
    Answered found = new Answered();
    found.whole = planned(aggregate);
    found.partial = found.whole == null ? null : partial(found.whole);
    Conditions conditions = conditions(Lists.from((scala.collection.Iterable) rows._2()), relation, scan);
    if (found.partial == null || conditions == null) {
      return null;
    }
    Map aliases = aliases((scala.collection.Iterable) rows._1());
    List projections =
        expand == null ? Arrays.asList(Arrays.asList(aliases)) : projections(above, expand, aliases);
    AggregateQuestion wanted = AggregateQuestion.of(found.partial, conditions, projections);
    List tasks = wanted == null ? Collections.EMPTY_LIST : ScanTasks.of(scan);
    boolean canAsk = !tasks.isEmpty() && tasks.get(0) instanceof FileScanTask;
    return canAsk && ask(found, scan, conditions, wanted, tasks, "") ? found : null;
  }

  /** The projections, the filters and what is below them; null if a plan is something else. */
  private static Tuple3 rows(LogicalPlan plan) {
    Option rows = PhysicalOperation.unapply(plan);
    return rows.isEmpty() ? null : (Tuple3) rows.get();
  }

  /** Take what the index gives for the rows of some tasks; false if Spark has to read all of them. */
  private boolean ask(
      Answered found, Scan scan, Conditions conditions, AggregateQuestion wanted, List tasks, String of)
      throws Exception {
    found.question = new ScanQuestion(scan, conditions);
    found.question.aggregates = wanted;
    Known known = answer(found.question, tasks, of + wanted.key());
    found.answer = known.answer;
    found.rows = known.rows;
    if (found.rows == null) {
      return false;
    }
    found.unread = found.answer.view.without(tasks, found.answer.answered, false);
    return true;
  }

  /** What the index gives for a question about a scan, and that as rows; both null if Spark has to read all rows. */
  private static class Known {
    final WeakReference<Object> scan;
    final String key;
    final AggregateAnswer answer;
    final List rows;

    Known(Object scan, String key, AggregateAnswer answer, List rows) {
      this.scan = new WeakReference(scan);
      this.key = key;
      this.answer = answer;
      this.rows = rows;
    }
  }

  /** An aggregate, and what the index gives for its rows. */
  private static class Answered {
    /** Spark's plan. */
    SparkPlan whole;
    /** The part of Spark's plan that reads rows. */
    BaseAggregateExec partial;

    ScanQuestion question;
    AggregateAnswer answer;
    /** The answer as rows of keys and buffers. */
    List rows;
    /** The tasks that are still to be read. */
    List unread;

    /** What the text of the plan says of the rows. */
    String name() {
      String note = answer.note.isEmpty() ? question.aggregates + " of " + question.table.name() : answer.note;
      return "PuffinIndexAnswer (" + note.replaceFirst("^puffin-index: ", "") + ") ";
    }
  }

  /** Spark's own plan of an aggregate. */
  private static SparkPlan planned(Aggregate aggregate) throws Exception {
    Object planner = ScanTasks.call(ScanTasks.call(SparkSession.active(), "sessionState"), "planner");
    scala.collection.Seq plans =
        (scala.collection.Seq) ((SparkStrategy) ScanTasks.call(planner, "Aggregation")).apply(aggregate);
    return plans.isEmpty() ? null : (SparkPlan) plans.head();
  }

  /** The aggregate that reads rows; null if Spark plans something else between. */
  private static BaseAggregateExec partial(SparkPlan whole) {
    SparkPlan node = whole;
    while (node instanceof BaseAggregateExec && node.children().size() == 1) {
      SparkPlan child = (SparkPlan) node.children().head();
      if (child instanceof PlanLater) {
        return (BaseAggregateExec) node;
      }
      node = child;
    }
    return null;
  }

  /** The whole filter above a scan; null if the filter must see every row. */
  private static Conditions conditions(List<Expression> filters, DataSourceV2ScanRelation relation, Scan scan) throws Exception {
    Expression filter = null;
    for (Expression next : filters) {
      if (!next.deterministic()) {
        return null;
      }
      filter = filter == null ? next : new And(filter, next);
    }
    return new Conditions(filter, relation.output(), ScanQuestion.schema(scan), true);
  }

  /** For each row that comes of one row: what the attributes above are, then those of the new row, and those below. */
  private static List projections(Map above, Expand expand, Map below) {
    List projections = new ArrayList();
    for (scala.collection.Seq<Expression> expressions : Lists.from(expand.projections())) {
      Map row = new HashMap();
      scala.collection.Iterator values = expressions.iterator();
      for (Attribute attribute : Lists.from(expand.output())) {
        row.put(attribute.exprId(), values.next());
      }
      projections.add(Arrays.asList(above, row, below));
    }
    return projections;
  }

  /** What projections compute, by the ID of the expression. */
  private static Map aliases(scala.collection.Iterable<NamedExpression> projections) {
    Map aliases = new HashMap();
    for (NamedExpression projection : Lists.from(projections)) {
      if (projection instanceof Alias) {
        aliases.put(projection.exprId(), ((Alias) projection).child());
      }
    }
    return aliases;
  }

  /** The answer and its rows; both null if Spark has to read all rows. */
  private Known answer(ScanQuestion question, List tasks, String key) throws Exception {
    synchronized (answers) {
      for (Known known : answers) {
        if (known.scan.get() == question.scan && known.key.equals(key)) {
          return known;
        }
      }
    }
    AggregateAnswer answer = rule.aggregates(question, tasks);
    List unread = answer == null ? null : answer.view.without(tasks, answer.answered, false);
    List rows = answer == null ? null : question.aggregates.rows(answer, unread);
    if (answer != null && rows == null) {
      question.aggregates.decline();
      rule.aggregates(question, tasks);
    }
    Known found = new Known(question.scan, key, answer, rows);
    remember(found);
    return found;
  }

  /** Keep an answer, and as many of the earlier ones as memory has room for. */
  private void remember(Known latest) {
    synchronized (answers) {
      answers.add(0, latest);
      int count = 0;
      long rows = 0;
      for (Iterator it = answers.iterator(); it.hasNext(); ) {
        Known known = (Known) it.next();
        count++;
        rows += known.rows == null ? 0 : known.rows.size();
        boolean isWanted = known == latest || (count <= ANSWERS_REMEMBERED && rows <= ROWS_REMEMBERED);
        if (!isWanted || known.scan.get() == null) {
          it.remove();
        }
      }
    }
  }

  /** The plan of buffers: those of the index, and those of the row groups that have to be read. */
  private SparkPlan replacement(Answered answered, LogicalPlan child) throws Exception {
    SparkPlan partial = (SparkPlan) answered.partial;
    List unread = answered.unread;
    List attributes = new ArrayList();
    for (Attribute attribute : Lists.from(partial.output())) {
      attributes.add(unread.isEmpty() ? attribute : attribute.newInstance());
    }
    SparkPlan known = named(local(attributes, answered.rows), answered.name());
    if (unread.isEmpty()) {
      // One partition needs no shuffle.
      return new CoalesceExec(1, known);
    }
    Map scans = new IdentityHashMap();
    scans.put(answered.question.scan, rule.narrowed(answered.question, unread));
    LogicalPlan rest = (LogicalPlan) child.transform(new Change(new PruneScans.ReplaceScans(scans)));
    SparkPlan read = (SparkPlan) partial.withNewChildren(Lists.of(Arrays.asList(new PlanLater(rest))));
    return new UnionExec(Lists.of(Arrays.asList(read, known)));
  }

  /** A scan of rows that the driver has. */
  private static SparkPlan local(List attributes, List rows) throws Exception {
    return (SparkPlan) ScanTasks.made(LocalTableScanExec.class, Lists.of(attributes), Lists.of(rows));
  }

  /** The same scan with a name of its own in the text of plans. */
  private static SparkPlan named(SparkPlan local, String name) throws Exception {
    Object ordering = Lists.of(Collections.EMPTY_LIST);
    return (SparkPlan)
        ScanTasks.made(
            RDDScanExec.class, local.output(), local.execute(), name, new UnknownPartitioning(0), ordering);
  }

  /** The plan with another node in the place of the partial aggregate. */
  private static SparkPlan replaced(SparkPlan node, BaseAggregateExec partial, SparkPlan replacement) {
    if (node == partial) {
      return replacement;
    }
    SparkPlan child = replaced((SparkPlan) node.children().head(), partial, replacement);
    return (SparkPlan) node.withNewChildren(Lists.of(Arrays.asList(child)));
  }
}
