package io.puffinindex.spark;

import io.puffinindex.spark.conditions.Conditions;
import io.puffinindex.spark.joins.AwaitedColumn;
import io.puffinindex.spark.joins.RuntimeFilters;
import io.puffinindex.spark.joins.RuntimeScan;
import io.puffinindex.spark.scans.IcebergScans;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BiFunction;
import java.util.function.Predicate;
import org.apache.iceberg.FileScanTask;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ListQuery;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.RowLevelWrite;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.internal.SQLConf;

/**
 * An optimizer rule that takes row groups out of Iceberg scans.
 *
 * <p>The rule asks the planner about each scan ({@link IndexPlanner}) and drops the row groups that
 * the planner names. A data file that the index does not know, or knows with another size, is read
 * whole. After any failure the scan stays as it was.
 *
 * <p>A scan whose indexed columns a join compares waits for the keys of the join ({@link
 * RuntimeScan}).
 */
public final class PruneScans extends Rule<LogicalPlan> implements Cloneable {
  private final String hook;
  private String home;
  public final IndexPlanner planner;
  private final boolean strict;
  public final JobNotes notes = new JobNotes();
  private final AtomicBoolean ended = new AtomicBoolean();

  /** Says of an aggregate whether the index answers it, so that its scan is not looked at here. */
  private volatile Predicate<Aggregate> answering = aggregate -> false;

  public PruneScans(
      String hook, String home, BiFunction<String, byte[], byte[]> planner, Boolean strict) {
    this.hook = hook;
    this.home = home;
    this.planner = new IndexPlanner(planner);
    this.strict = strict;
  }

  /** The same rule for another session. Both end together. */
  public PruneScans of(String session) throws CloneNotSupportedException {
    PruneScans other = (PruneScans) clone();
    other.home = session;
    return other;
  }

  /** Leave aggregates to somebody who answers them from the index. */
  public void leaveAggregates(Predicate<Aggregate> answering) {
    this.answering = answering;
  }

  public String hook() {
    return hook;
  }

  public String home() {
    return home;
  }

  /** Do nothing from now on, in all sessions that have this rule. */
  public void end() {
    ended.set(true);
  }

  public boolean hasEnded() {
    return ended.get();
  }

  /** End, and leave a session. */
  public void disable(Object session) throws ReflectiveOperationException {
    end();
    Hook.put(session, List.of(), List.of());
    Hook.putCatalog(session, null);
  }

  /** Be all of the hook that a session has: an audit's takes no statements and no aggregates. */
  public void enableAlone(Object session) throws ReflectiveOperationException {
    Hook.put(session, List.of(this), List.of());
  }

  @Override
  public String ruleName() {
    return "PuffinIndexPruneScans";
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    // A subquery is optimised by itself first and may be merged; the whole query comes last.
    if (hasEnded() || plan instanceof Subquery) {
      return plan;
    }
    try {
      notes.forgetOtherQueries();
    } catch (RuntimeException e) {
      Trouble.LOG.warn("job description not restored", e);
    }
    Pass pass = new Pass(plan);
    pass.run();
    return changed(plan, pass, true);
  }

  /**
   * A plan with what a pass has found; only scans of the query itself wait for keys. Subqueries
   * come first: a runtime filter has the same subquery as its filter.
   */
  private LogicalPlan changed(LogicalPlan plan, Pass pass, boolean takesFilters) {
    LogicalPlan changed = plan;
    if (!pass.subqueries.whole.isEmpty() || !pass.subqueries.files.isEmpty()) {
      changed =
          changed.transformAllExpressions(
              Lists.change(
                  node ->
                      node instanceof SubqueryExpression subquery
                          ? changed(subquery, pass)
                          : null));
    }
    if (pass.replacements.isEmpty()) {
      return changed;
    }
    try {
      LogicalPlan replaced = RuntimeScan.inPlan(changed, pass.replacements);
      int empty = Collections.frequency(pass.replacements.values(), null);
      boolean mayWait = takesFilters && empty < pass.replacements.size();
      if (mayWait && SQLConf.get().dynamicPartitionPruningEnabled()) {
        replaced = RuntimeFilters.apply(replaced, plan != pass.query);
      }
      // What has no rows without an empty scan goes as well.
      return empty > 0 ? PropagateEmptyRelation.apply(replaced) : replaced;
    } catch (Throwable e) {
      tell("scans stay in the plan as they were", e);
      return changed;
    }
  }

  /** A subquery that runs by itself, with a changed plan; only one of files takes filters. */
  private Expression changed(SubqueryExpression subquery, Pass pass) {
    LogicalPlan plan = subquery.plan();
    boolean isOfFiles = subquery instanceof ListQuery && pass.subqueries.files.contains(plan);
    if (!isOfFiles && !(subquery instanceof ScalarSubquery && pass.subqueries.isWhole(plan))) {
      return null;
    }
    LogicalPlan changed = changed(plan, pass, isOfFiles);
    return changed == plan ? null : subquery.withNewPlan(changed);
  }

  /** What the planner says of a question; null if nothing changes. */
  public IndexPlanner.Answer ask(ScanQuestion question, List<FileScanTask> tasks)
      throws IOException {
    return planner.ask(question, tasks, home);
  }

  public void tell(String what, Throwable trouble) {
    boolean isStrict = Boolean.parseBoolean(Settings.ofSession().get("strict", strict + ""));
    Trouble.tell(isStrict, what, trouble);
  }

  /** One application of the rule to one query. */
  private final class Pass {
    /** What takes the place of each scan: one that waits for keys, or null if no task is left. */
    final IdentityHashMap<Scan, Scan> replacements = new IdentityHashMap<>();

    final Subqueries subqueries;
    private final LogicalPlan query;

    /** By scan, the awaited columns by the names of their runtime filters. */
    private final IdentityHashMap<Scan, Map<String, AwaitedColumn>> runtimeFilters =
        new IdentityHashMap<>();

    /** By scan, how many rows of the scan the query wants. */
    private final IdentityHashMap<Scan, WantedRows> wantedRows = new IdentityHashMap<>();

    private final Set<Scan> scans = Subqueries.identitySet();

    /** The scans that stand at several places of the plan. */
    private final Set<Scan> sharedScans = Subqueries.identitySet();

    /** {@code merge}, {@code update} or {@code delete}; null for a query. */
    private final String write;

    /** Whether the scans of such a statement may wait for keys. */
    private final boolean prunesWrites = !Settings.ofSession().says("merge-pruning", "false");

    Pass(LogicalPlan query) {
      this.query = query;
      write =
          Lists.nodes(query, RowLevelWrite.class).stream()
              .map(node -> node.operation().command().toString().toLowerCase(Locale.ROOT))
              .findFirst()
              .orElse(null);
      subqueries = new Subqueries(query);
    }

    /** Ask about the scans of a query and of its subqueries. */
    void run() {
      List<LogicalPlan> plans = new ArrayList<>(subqueries.whole);
      plans.add(query);
      try {
        plans.forEach(this::lookAtScans);
        lookAtKeys(query, true);
        for (LogicalPlan plan : subqueries.files) {
          lookAtScans(plan);
          // A scan of a subquery that waits for one more subquery may wait for ever: Spark
          // describes the plans of all subqueries when one of them goes on, and before Spark 4.1
          // takes locks of nodes that wait.
          if (prunesWrites && !SparkParts.IS_3) {
            lookAtKeys(plan, !SparkParts.IS_4_0);
          }
        }
      } catch (Throwable e) {
        tell("index not used for joins and limits", e);
      }
      plans.forEach(plan -> visit(plan, null, true, true));
      subqueries.files.forEach(plan -> visit(plan, null, false, true));
      for (LogicalPlan plan : subqueries.others) {
        for (DataSourceV2ScanRelation relation :
            Lists.nodes(plan, DataSourceV2ScanRelation.class)) {
          visitScan(relation, null, false, false);
        }
      }
    }

    /** Find the columns whose values joins and scalar subqueries tell once the query runs. */
    private void lookAtKeys(LogicalPlan plan, boolean ofSubqueries) {
      for (AwaitedColumn column : RuntimeFilters.awaited(plan, ofSubqueries)) {
        column.source = write == null ? column.source : write;
        runtimeFilters
            .computeIfAbsent(column.scan, scan -> new LinkedHashMap<>())
            .merge(column.name(), column, AwaitedColumn::with);
      }
    }

    /** Find the rows that LIMIT wants, and the scans of a plan. */
    private void lookAtScans(LogicalPlan plan) {
      for (LogicalPlan node : Lists.nodes(plan, LogicalPlan.class)) {
        WantedRows wanted = WantedRows.of(node);
        if (wanted != null) {
          wantedRows.put(wanted.scan(), wanted);
        }
        // What one place of the plan says does not hold for another that reads the same scan.
        if (node instanceof DataSourceV2ScanRelation relation
            && (!scans.add(relation.scan()) || subqueries.shared.contains(relation.scan()))) {
          sharedScans.add(relation.scan());
        }
      }
    }

    /** Ask about the scans of a plan, which may leave it without a task, and may wait for keys. */
    private void visit(LogicalPlan plan, Expression above, boolean mayGo, boolean mayWait) {
      if (plan instanceof DataSourceV2ScanRelation relation) {
        boolean isShared = sharedScans.contains(relation.scan());
        visitScan(relation, isShared ? null : above, mayGo, mayWait && !isShared);
        return;
      }
      if (plan instanceof Aggregate aggregate && answering.test(aggregate)) {
        return;
      }
      Expression condition = plan instanceof Filter filter ? filter.condition() : null;
      // MERGE, UPDATE and DELETE keep their scan: Iceberg validates their writes by what the scan
      // has read. A scan that rewrites whole data files must read them whole.
      boolean isWrite = plan instanceof RowLevelWrite;
      boolean mayWaitBelow = mayWait && (!isWrite || (plan instanceof WriteDelta && prunesWrites));
      for (LogicalPlan child : Lists.from(plan.children())) {
        visit(child, condition, mayGo && !isWrite, mayWaitBelow);
      }
    }

    private void visitScan(
        DataSourceV2ScanRelation relation, Expression above, boolean mayGo, boolean mayWait) {
      Scan scan = relation.scan();
      try {
        if (IcebergScans.isBatchScan(scan) && prune(relation, above, mayGo, mayWait) && mayGo) {
          replacements.put(scan, null);
        }
      } catch (Throwable e) {
        tell("index not used, the scan stays as it was: " + scan, e);
      }
    }

    /** Take row groups out of a scan; say whether the scan has no task left. */
    private boolean prune(
        DataSourceV2ScanRelation relation, Expression above, boolean mayGo, boolean mayWait)
        throws Exception {
      Scan scan = relation.scan();
      var output = relation.output();
      Map<String, AwaitedColumn> filters =
          mayWait ? runtimeFilters.getOrDefault(scan, Map.of()) : Map.of();
      WantedRows wanted = mayGo && mayWait ? wantedRows.get(scan) : null;
      boolean nothingAsked =
          IcebergScans.filters(scan).isEmpty()
              && above == null
              && filters.isEmpty()
              && wanted == null;
      if (nothingAsked
          || IcebergScans.isOfNoSnapshot(scan)
          || planner.isNotToBeAsked(IcebergScans.table(scan), Settings.ofSession())) {
        return false;
      }
      List<FileScanTask> tasks = IcebergScans.tasks(scan);
      if (tasks instanceof IcebergScans.Pruned || tasks.isEmpty()) {
        return tasks instanceof IcebergScans.Pruned && tasks.isEmpty();
      }
      var schema = IcebergScans.schema(scan);
      Node wantedNode = wanted == null ? null : wanted.node(output, schema);
      ScanQuestion question =
          new ScanQuestion(scan, new Conditions(above, output, schema, wantedNode != null));
      question.wanted = wantedNode;
      Map<String, Node> columns = AwaitedColumn.nodes(filters, schema);
      columns.forEach(
          (name, column) -> question.addRuntimeField(column.field(), filters.get(name).rows));
      if (question.isEmpty()) {
        return false;
      }
      IndexPlanner.Answer answer = ask(question, tasks);
      if (answer == null) {
        return false;
      }
      IcebergScans.Pruned left = answer.keepsAll() ? null : answer.left(tasks);
      boolean isEmpty = left != null && left.isEmpty();
      boolean isForThisQuery = left != null && wantedNode != null;
      if (left == null || isForThisQuery) {
        IcebergScans.markAsPruned(scan, tasks);
      } else {
        IcebergScans.replaceTasks(scan, left);
      }
      notes.add(answer.note);
      columns.values().removeIf(column -> !answer.runtimeFields.contains(column.field()));
      var fewRows = answer.fewRows(tasks);
      if ((!columns.isEmpty() || isForThisQuery || !fewRows.isEmpty()) && !isEmpty) {
        // A scan of another query with the same filters is equal, but wants other rows.
        List<FileScanTask> own = isForThisQuery ? left : null;
        replacements.put(scan, RuntimeScan.of(PruneScans.this, question, columns, own, fewRows));
      }
      return isEmpty;
    }
  }
}
