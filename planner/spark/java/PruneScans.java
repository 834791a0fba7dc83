package io.puffinindex.spark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BiFunction;
import java.util.function.Predicate;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.Schema;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.RowLevelWrite;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.dynamicpruning.CleanupDynamicPruningFilters;
import org.apache.spark.sql.internal.SQLConf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * An optimizer rule that takes row groups out of Iceberg scans.
 *
 * <p>The rule asks the planner about each scan ({@link IndexPlanner}) and drops the row groups that the planner names. A
 * data file that the index does not know, or knows with another size, is read whole. After any failure the scan stays as
 * it was.
 *
 * <p>A scan whose indexed columns a join compares waits for the keys of the join ({@link RuntimeScan}).
 */
public class PruneScans extends Rule {
  private static final Logger LOG = LoggerFactory.getLogger("puffin-index");

  private final String hook;
  private final String home;
  private final IndexPlanner planner;
  private final boolean strict;
  private final JobNotes notes;
  private final AtomicBoolean ended;
  /** Says of an aggregate whether the index answers it, so that its scan is not looked at here. */
  private volatile Predicate answering;

  /**
   * @param hook the name of the planner's side of this hook
   * @param home the UUID of the session that has this rule; sessions that Spark copies from it keep its UUID here
   * @param planner answers a request: (JSON, bitmap of row groups) to bytes
   * @param strict whether trouble fails queries of sessions that do not set this themselves
   */
  public PruneScans(String hook, String home, BiFunction planner, Boolean strict) {
    this.hook = hook;
    this.home = home;
    this.planner = new IndexPlanner(planner);
    this.strict = strict.booleanValue();
    notes = new JobNotes();
    ended = new AtomicBoolean();
  }

  private PruneScans(PruneScans other, String home) {
    this.hook = other.hook;
    this.home = home;
    this.planner = other.planner;
    this.strict = other.strict;
    notes = other.notes;
    ended = other.ended;
  }

  /** The same rule for another session. Both end together. */
  public PruneScans of(String session) {
    return new PruneScans(this, session);
  }

  /** Leave aggregates to somebody who answers them from the index. */
  public void leaveAggregates(Predicate answering) {
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

  public String ruleName() {
    return "PuffinIndexPruneScans";
  }

  public TreeNode apply(TreeNode plan) {
    // Spark optimises a subquery by itself first, and may then merge it with others. The whole query comes last.
    if (hasEnded() || plan instanceof Subquery) {
      return plan;
    }
    try {
      notes.forgetOtherQueries();
    } catch (RuntimeException e) {
      LOG.warn("job description not restored", e);
    }
    Pass pass = new Pass((LogicalPlan) plan);
    pass.run();
    return changed((LogicalPlan) plan, pass, true);
  }

  /**
   * A plan with what a pass has found. Subqueries come first: a runtime filter has the same subquery as its filter.
   *
   * @param takesFilters whether scans may wait for keys, as those of the query itself may
   */
  private LogicalPlan changed(LogicalPlan plan, Pass pass, boolean takesFilters) {
    LogicalPlan changed = plan;
    if (!pass.subqueries.whole.isEmpty()) {
      changed = (LogicalPlan) changed.transformAllExpressions(new Change(new ChangeSubqueries(pass)));
    }
    if (!pass.runtimeScans.isEmpty()) {
      changed = withRuntimeScans(changed, pass.runtimeScans, takesFilters);
    }
    return pass.empty.scans.isEmpty() ? changed : withoutScans(changed, pass.empty);
  }

  /** The plan with scans that take the keys of joins, and with the filters that hand over these keys. */
  private LogicalPlan withRuntimeScans(LogicalPlan plan, Map runtimeScans, boolean takesFilters) {
    try {
      LogicalPlan replaced = (LogicalPlan) plan.transform(new Change(new ReplaceScans(runtimeScans)));
      if (!takesFilters || !SQLConf.get().dynamicPartitionPruningEnabled()) {
        return replaced;
      }
      // A filter that does not get as far as its scan would be evaluated row by row.
      return (LogicalPlan) CleanupDynamicPruningFilters.apply(JoinPruning.apply(ScalarPruning.apply(replaced)));
    } catch (Throwable e) {
      tell("index not used for joins", e);
      return plan;
    }
  }

  /** The plan without scans that have no task left, and without all that then has no rows either. */
  private LogicalPlan withoutScans(LogicalPlan plan, EmptyScans empty) {
    try {
      return PropagateEmptyRelation.apply((LogicalPlan) plan.transform(new Change(empty)));
    } catch (Throwable e) {
      tell("empty scans not left out of the plan", e);
      return plan;
    }
  }

  /** Whether the planner need not be asked about the aggregates of a scan now. */
  public boolean isNotToBeAsked(Scan scan) throws Exception {
    Map settings = ScanQuestion.settings();
    return ScanQuestion.says(settings, "aggregates", "false")
        || planner.isNotToBeAsked(ScanQuestion.table(scan), settings);
  }

  /** What the index gives for the aggregates of a scan; null if all rows have to be read. */
  public AggregateAnswer aggregates(ScanQuestion question, List tasks) throws Exception {
    return planner.aggregates(question, tasks, home);
  }

  /** A scan of some tasks, which is not equal to a scan of other tasks. */
  public Scan narrowed(ScanQuestion question, List tasks) {
    return RuntimeScan.of(question, Collections.EMPTY_MAP, tasks, planner, home, isStrict());
  }

  /** Let the description of the query's jobs say something. */
  public void note(String note) {
    if (note.length() > 0) {
      notes.add(note);
    }
  }

  public void tell(String what, Throwable trouble) {
    ScanQuestion.tell(isStrict(), what, trouble);
  }

  private boolean isStrict() {
    return ScanQuestion.isStrict(ScanQuestion.settings(), strict);
  }

  /** Changes the plans of the subqueries that run by themselves. */
  private class ChangeSubqueries implements Change.OfNode {
    private final Pass pass;

    ChangeSubqueries(Pass pass) {
      this.pass = pass;
    }

    public Object changed(Object node) {
      if (!(node instanceof ScalarSubquery) || !pass.subqueries.isWhole(((ScalarSubquery) node).plan())) {
        return null;
      }
      ScalarSubquery subquery = (ScalarSubquery) node;
      LogicalPlan changed = PruneScans.this.changed(subquery.plan(), pass, false);
      return changed == subquery.plan() ? null : subquery.withNewPlan(changed);
    }
  }

  /** One application of the rule to one query. */
  private class Pass {
    /** Scans that have no task left. */
    final EmptyScans empty = new EmptyScans();
    /** Scans that take the keys of joins, by the scan that each replaces. */
    final Map runtimeScans = new IdentityHashMap();
    final Subqueries subqueries;
    private final LogicalPlan query;
    /** By scan, the runtime filters that it may have: column, operator, rows of the other side and source, by name. */
    private final Map runtimeFilters = new IdentityHashMap();
    /** By scan, how many rows of the scan the query wants. */
    private final Map wantedRows = new IdentityHashMap();
    private final Map scans = new IdentityHashMap();
    /** The scans that stand at several places of the plan. */
    private final Map sharedScans = new IdentityHashMap();

    Pass(LogicalPlan query) {
      this.query = query;
      subqueries = new Subqueries(query);
    }

    /** Ask about the scans of a query and of its subqueries. */
    void run() {
      List plans = new ArrayList(subqueries.whole);
      plans.add(query);
      try {
        for (int i = 0; i < plans.size(); i++) {
          lookAtScans((LogicalPlan) plans.get(i));
        }
        // A scan of a subquery that waits for one more subquery may wait for ever: Spark 3.5 describes the plans of all
        // subqueries whenever one of them goes on, and takes locks of nodes that wait.
        lookAtKeys(query);
      } catch (Throwable e) {
        tell("index not used for joins and limits", e);
      }
      for (int i = 0; i < plans.size(); i++) {
        visit((LogicalPlan) plans.get(i), null, empty);
      }
      for (int i = 0; i < subqueries.others.size(); i++) {
        visitScans((LogicalPlan) subqueries.others.get(i));
      }
    }

    /** Find the columns whose values a join or a scalar subquery tells once the query runs. */
    private void lookAtKeys(LogicalPlan plan) {
      List<AwaitedColumn> awaited = new ArrayList();
      JoinPruning.collect(plan, awaited);
      ScalarPruning.collect(plan, awaited);
      for (int i = 0; i < awaited.size(); i++) {
        AwaitedColumn column = (AwaitedColumn) awaited.get(i);
        Map filters = (Map) runtimeFilters.get(column.scan);
        if (filters == null) {
          filters = new LinkedHashMap();
          runtimeFilters.put(column.scan, filters);
        }
        AwaitedColumn before = (AwaitedColumn) filters.get(column.name());
        filters.put(column.name(), before == null ? column : before.also(column));
      }
    }

    /** Find the rows that LIMIT wants. */
    private void lookAtScans(LogicalPlan plan) {
      WantedRows wanted = WantedRows.of(plan);
      if (wanted != null) {
        wantedRows.put(wanted.scan, wanted);
      }
      if (plan instanceof DataSourceV2ScanRelation) {
        Object scan = ((DataSourceV2ScanRelation) plan).scan();
        // What one place of the plan says of its rows does not hold for another place that reads the same scan.
        boolean isShared = scans.containsKey(scan) || subqueries.shared.contains(scan);
        (isShared ? sharedScans : scans).put(scan, scan);
      }
      for (scala.collection.Iterator it = plan.children().iterator(); it.hasNext(); ) {
        lookAtScans((LogicalPlan) it.next());
      }
    }

    /** Ask about scans for their own filters. */
    private void visitScans(LogicalPlan plan) {
      if (plan instanceof DataSourceV2ScanRelation) {
        visitScan((DataSourceV2ScanRelation) plan, null, new EmptyScans(), false);
      }
      for (scala.collection.Iterator it = plan.children().iterator(); it.hasNext(); ) {
        visitScans((LogicalPlan) it.next());
      }
    }

    private void visitScan(
        DataSourceV2ScanRelation relation, Expression above, EmptyScans empty, boolean mayBeReplaced) {
      Scan scan = relation.scan();
      if (ScanTasks.isBatchScan(scan)) {
        try {
          if (prune(scan, above, relation.output(), mayBeReplaced)) {
            empty.scans.add(scan);
          }
        } catch (Throwable e) {
          tell("index not used, the scan stays as it was: " + scan, e);
        }
      }
    }

    private void visit(LogicalPlan plan, Expression above, EmptyScans empty) {
      if (plan instanceof DataSourceV2ScanRelation) {
        boolean isShared = sharedScans.containsKey(((DataSourceV2ScanRelation) plan).scan());
        boolean mayBeReplaced = empty == this.empty && !isShared;
        visitScan((DataSourceV2ScanRelation) plan, isShared ? null : above, empty, mayBeReplaced);
        return;
      }
      if (plan instanceof Aggregate && answering != null && answering.test(plan)) {
        return;
      }
      Expression condition = plan instanceof Filter ? ((Filter) plan).condition() : null;
      // MERGE, UPDATE and DELETE keep their scan: Iceberg validates their writes by what the scan has read.
      EmptyScans leftOut = plan instanceof RowLevelWrite ? new EmptyScans() : empty;
      scala.collection.Iterator children = plan.children().iterator();
      while (children.hasNext()) {
        visit((LogicalPlan) children.next(), condition, leftOut);
      }
    }

    /** Take row groups out of a scan; say whether the scan has no task left. */
    private boolean prune(Scan scan, Expression above, scala.collection.Iterable output, boolean mayBeReplaced)
        throws Exception {
      Map filters = mayBeReplaced ? (Map) runtimeFilters.get(scan) : null;
      WantedRows wanted = mayBeReplaced ? (WantedRows) wantedRows.get(scan) : null;
      boolean nothingAsked =
          ScanQuestion.filters(scan).isEmpty() && above == null && filters == null && wanted == null;
      if (nothingAsked
          || ScanQuestion.isOfNoSnapshot(scan)
          || planner.isNotToBeAsked(ScanQuestion.table(scan), ScanQuestion.settings())) {
        return false;
      }
      List tasks = ScanTasks.of(scan);
      if (tasks instanceof ScanTasks.Pruned) {
        return tasks.isEmpty();
      }
      if (tasks.isEmpty() || !(tasks.get(0) instanceof FileScanTask)) {
        return false;
      }
      Schema schema = ScanQuestion.schema(scan);
      Map<String, Object> wantedNode = wanted == null ? null : wanted.node(output, schema);
      ScanQuestion question = new ScanQuestion(scan, new Conditions(above, output, schema, wantedNode != null));
      question.wanted = wantedNode;
      Map columns = filters == null ? Collections.EMPTY_MAP : columns(output, schema, filters);
      for (Iterator it = columns.keySet().iterator(); it.hasNext(); ) {
        Object name = it.next();
        question.addRuntimeField(((Map) columns.get(name)).get("field"), ((AwaitedColumn) filters.get(name)).rows);
      }
      if (question.isEmpty()) {
        return false;
      }
      IndexPlanner.Answer answer = planner.ask(question, tasks, home);
      if (answer == null) {
        return false;
      }
      ScanTasks.Pruned left = answer.keepsAll() ? null : answer.left(tasks);
      boolean isEmpty = left != null && left.isEmpty();
      boolean isForThisQuery = left != null && wantedNode != null;
      if (left == null || isForThisQuery) {
        ScanTasks.mark(scan, tasks);
      } else {
        ScanTasks.replace(scan, left);
      }
      note(answer.note);
      for (Iterator it = columns.values().iterator(); it.hasNext(); ) {
        if (!answer.runtimeFields.contains(((Map) it.next()).get("field"))) {
          it.remove();
        }
      }
      if ((!columns.isEmpty() || isForThisQuery) && !isEmpty) {
        // Another query's scan with the same filters is equal to this one, but wants other rows. So this scan keeps them.
        List own = isForThisQuery ? left : null;
        runtimeScans.put(scan, RuntimeScan.of(question, columns, own, planner, home, isStrict()));
      }
      return isEmpty;
    }

    /** The nodes of columns, by the names of runtime filters; without columns of a type that no index can be of. */
    private Map columns(scala.collection.Iterable output, Schema schema, Map filters) {
      Map columns = new HashMap();
      for (scala.collection.Iterator it = output.iterator(); it.hasNext(); ) {
        AttributeReference attribute = (AttributeReference) it.next();
        String type = Conditions.nameOf(attribute.dataType());
        Types.NestedField field = schema.asStruct().field(attribute.name());
        for (Iterator names = filters.keySet().iterator(); names.hasNext(); ) {
          String name = (String) names.next();
          AwaitedColumn filter = (AwaitedColumn) filters.get(name);
          boolean isColumn = filter.column.equals(attribute.name()) && type != null && field != null;
          // A filter must not be taken for another one, should Spark lose its name.
          boolean isCertain = filter.operator.equals("=") || !filters.containsKey(filter.column);
          if (isColumn && isCertain && (name.equals(filter.column) || schema.asStruct().field(name) == null)) {
            Map<String, Object> column = new HashMap();
            column.put("field", Integer.valueOf(field.fieldId()));
            column.put("name", attribute.name());
            column.put("type", type);
            column.put("operator", filter.operator);
            column.put("source", filter.source);
            columns.put(name, column);
          }
        }
      }
      return columns;
    }
  }

  /** Puts other scans in the place of some scans. */
  public static class ReplaceScans implements Change.OfNode {
    private final Map replacements;

    public ReplaceScans(Map replacements) {
      this.replacements = replacements;
    }

    public Object changed(Object node) {
      if (!(node instanceof DataSourceV2ScanRelation)) {
        return null;
      }
      DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) node;
      Scan scan = (Scan) replacements.get(relation.scan());
      return scan == null
          ? null
          : relation.copy(
              relation.relation(), scan, relation.output(), relation.keyGroupedPartitioning(), relation.ordering());
    }
  }

  /** Puts a relation without rows in the place of each scan that has no task left. */
  private static class EmptyScans implements Change.OfNode {
    final Set scans = Collections.newSetFromMap(new IdentityHashMap());

    public Object changed(Object node) {
      return node instanceof DataSourceV2ScanRelation && scans.contains(((DataSourceV2ScanRelation) node).scan())
          ? LocalRelation$.MODULE$.apply(((DataSourceV2ScanRelation) node).output())
          : null;
    }
  }
}
