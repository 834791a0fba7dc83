package io.puffinindex.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BiFunction;
import org.apache.iceberg.BaseMetadataTable;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotSummary;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableProperties;
import org.apache.iceberg.expressions.Binder;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.ExpressionParser;
import org.apache.iceberg.types.TypeUtil;
import org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.RowLevelWrite;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.internal.SQLConf;
import org.roaringbitmap.RoaringBitmap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;

/**
 * An optimizer rule that takes row groups out of Iceberg scans. Compiled by Janino: no generics, no lambdas.
 *
 * <p>Both sides number the row groups of one version of an index table alike ({@link View}). The rule sends the planner a
 * scan's row groups, as a bitmap of these numbers, and the scan's filters. The planner answers with the row groups that
 * need not be read. A data file that the view does not know, or knows with another size, is read whole. After any failure
 * the scan stays as it was. {@code planner/spark/wire.py} describes requests and answers.
 */
public class PruneScans extends Rule {
  private static final Logger LOG = LoggerFactory.getLogger("puffin-index");
  private static final String SETTINGS = "spark.puffin-index.";
  private static final String CATALOGS = "spark.sql.catalog.";
  private static final int ATTEMPTS = 5;
  private static final int ABSENT_REMEMBERED = 10000;
  private static final byte ABSENT = 'A';
  private static final byte VIEW = 'V';
  private static final byte DROPPED = 'D';

  private final String hook;
  private final String home;
  private final BiFunction planner;
  private final boolean strict;
  private final ObjectMapper json = new ObjectMapper();
  /** Views by table name and UUID. A table may have several names, and an index under one of them. */
  private final Map views;
  /** Until when not to ask about a table without an index, by table and settings; System.nanoTime() as a Double. */
  private final Map absent;
  private final JobNotes notes;
  private final AtomicBoolean ended;

  /**
   * @param hook the name of the planner's side of this hook
   * @param home the UUID of the session that has this rule; sessions that Spark copies from it keep its UUID here
   * @param planner answers a request: (JSON, bitmap of row groups) to bytes
   * @param strict whether trouble fails queries of sessions that do not set this themselves
   */
  public PruneScans(String hook, String home, BiFunction planner, Boolean strict) {
    this.hook = hook;
    this.home = home;
    this.planner = planner;
    this.strict = strict.booleanValue();
    views = new ConcurrentHashMap();
    absent = new ConcurrentHashMap();
    notes = new JobNotes();
    ended = new AtomicBoolean();
  }

  private PruneScans(PruneScans other, String home) {
    this.hook = other.hook;
    this.home = home;
    this.planner = other.planner;
    this.strict = other.strict;
    views = other.views;
    absent = other.absent;
    notes = other.notes;
    ended = other.ended;
  }

  /** The same rule for another session. Both end together. */
  public PruneScans of(String session) {
    return new PruneScans(this, session);
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
    if (hasEnded()) {
      return plan;
    }
    try {
      notes.forgetOtherQueries();
    } catch (RuntimeException e) {
      LOG.warn("job description not restored", e);
    }
    EmptyScans empty = new EmptyScans();
    // Spark optimises scalar subqueries one by one and may merge them later. Two subqueries that differ only in the filters
    // above their scans then share one scan, so these filters must not prune it.
    visit((LogicalPlan) plan, !(plan instanceof Subquery), null, empty);
    // Spark rewrites a correlated subquery later and must find its aggregate then: a count of no rows is 0, not NULL.
    return empty.scans.isEmpty() || plan instanceof Subquery ? plan : withoutScans((LogicalPlan) plan, empty);
  }

  /** The plan without scans that have no task left, and without all that then has no rows either. */
  private LogicalPlan withoutScans(LogicalPlan plan, EmptyScans empty) {
    try {
      return PropagateEmptyRelation.apply((LogicalPlan) plan.transform(empty));
    } catch (RuntimeException e) {
      if (isStrict(settings())) {
        throw e;
      }
      LOG.warn("empty scans not left out of the plan", e);
      return plan;
    }
  }

  private void visit(
      LogicalPlan plan,
      boolean useConditions,
      org.apache.spark.sql.catalyst.expressions.Expression above,
      EmptyScans empty) {
    if (plan instanceof DataSourceV2ScanRelation) {
      DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) plan;
      Object scan = relation.scan();
      if (ScanTasks.isBatchScan(scan)) {
        Map settings = settings();
        try {
          if (prune(scan, settings, above, relation.output())) {
            empty.scans.add(scan);
          }
        } catch (Throwable e) {
          if (isStrict(settings)) {
            throw new IllegalStateException("puffin-index: " + e.getMessage(), e);
          }
          LOG.warn("index not used, the scan stays as it was: {}", scan, e);
        }
      }
      return;
    }
    org.apache.spark.sql.catalyst.expressions.Expression condition =
        useConditions && plan instanceof Filter ? ((Filter) plan).condition() : null;
    // MERGE, UPDATE and DELETE keep their scan: Iceberg validates their writes by what the scan has read.
    EmptyScans leftOut = plan instanceof RowLevelWrite ? new EmptyScans() : empty;
    scala.collection.Iterator children = plan.children().iterator();
    while (children.hasNext()) {
      visit((LogicalPlan) children.next(), useConditions, condition, leftOut);
    }
  }

  /** This project's settings in the session that plans, as text. */
  private static Map settings() {
    return configured(SETTINGS);
  }

  /** The entries of the planning session's configuration whose names begin with a prefix. */
  private static Map configured(String prefix) {
    Map found = new HashMap();
    Map all = SQLConf.get().settings();
    // A synchronized map, which other threads may change meanwhile.
    synchronized (all) {
      for (Iterator it = all.entrySet().iterator(); it.hasNext(); ) {
        Map.Entry entry = (Map.Entry) it.next();
        if (((String) entry.getKey()).startsWith(prefix)) {
          found.put(entry.getKey(), entry.getValue());
        }
      }
    }
    return found;
  }

  /**
   * Whether a setting has a value. The planner reads all settings and refuses wrong values. This rule looks at two
   * settings itself: `enabled`, because it must switch off a planner that does not answer, and `strict`, because trouble on
   * this side must fail the query as well.
   */
  private static boolean says(Map settings, String name, String value) {
    String text = (String) settings.get(SETTINGS + name);
    return text != null && text.trim().equalsIgnoreCase(value);
  }

  private boolean isStrict(Map settings) {
    return settings.containsKey(SETTINGS + "strict") ? says(settings, "strict", "true") : strict;
  }

  /** Take row groups out of a scan; say whether the scan has no task left. */
  private boolean prune(
      Object scan,
      Map settings,
      org.apache.spark.sql.catalyst.expressions.Expression above,
      scala.collection.Iterable output)
      throws Exception {
    List filters = (List) ScanTasks.call(scan, "filters", "filterExpressions");
    Table table = (Table) ScanTasks.call(scan, "table");
    boolean nothingAsked = filters.isEmpty() && above == null;
    // The same class scans metadata tables, which have no data files.
    if (nothingAsked || table instanceof BaseMetadataTable || isIncremental(scan)) {
      return false;
    }
    String key = table.name() + " " + table.uuid();
    // An absence counts under the settings that it was found with: other settings may say another time.
    Object absence = Arrays.asList(new Object[] {key, settings});
    if (says(settings, "enabled", "false") || isKnownToBeAbsent(absence)) {
      return false;
    }
    List tasks = ScanTasks.of(scan);
    if (tasks instanceof ScanTasks.Pruned) {
      return tasks.isEmpty();
    }
    if (tasks.isEmpty() || !(tasks.get(0) instanceof FileScanTask)) {
      return false;
    }
    Conditions conditions = new Conditions(above, output, schema(scan));
    if (filters.isEmpty() && conditions.nodes.isEmpty()) {
      return false;
    }
    Map request = request(scan, table, filters, conditions);
    request.put("settings", settings);
    Long whole = wholeSnapshot(table, (Long) request.get("snapshot"), tasks.size());
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
      View view = (View) views.getOrDefault(key, View.NONE);
      View.Candidates candidates = view.candidates(tasks, whole);
      request.put("version", view.version);
      request.put("unindexed", Integer.valueOf(candidates.unindexed));
      byte[] answer = (byte[]) planner.apply(json.writeValueAsString(request), candidates.serialized);
      if (answer == null || answer.length == 0) {
        return false;
      }
      DataInputStream in = new DataInputStream(new ByteArrayInputStream(answer));
      byte kind = in.readByte();
      if (kind == ABSENT) {
        rememberAbsence(absence, in.readDouble());
        return false;
      }
      if (kind == DROPPED) {
        return drop(scan, tasks, view, candidates.rowGroups, in);
      }
      if (kind != VIEW) {
        throw new IllegalStateException("an answer of unknown kind " + kind);
      }
      // The index table has a newer version. Take its numbering and ask again.
      views.put(key, View.read(in));
    }
    LOG.warn("index not used: the index of {} changes too fast", table.name());
    return false;
  }

  private boolean isKnownToBeAbsent(Object absence) {
    Double until = (Double) absent.get(absence);
    return until != null && System.nanoTime() < until.doubleValue();
  }

  private void rememberAbsence(Object absence, double seconds) {
    if (absent.size() >= ABSENT_REMEMBERED) {
      absent.clear();
    }
    absent.put(absence, Double.valueOf(System.nanoTime() + seconds * 1e9));
  }

  /**
   * Drop the row groups that an answer names and nothing else. An answer that ends too early or too late drops nothing, and
   * a row group that was not asked about stays, whatever the summary of its snapshot says.
   *
   * @return whether the scan has no task left
   */
  private boolean drop(Object scan, List tasks, View view, RoaringBitmap asked, DataInputStream in) throws Exception {
    byte[] note = new byte[in.readUnsignedShort()];
    in.readFully(note);
    RoaringBitmap dropped = new RoaringBitmap();
    dropped.deserialize(in);
    if (in.read() >= 0) {
      throw new IllegalStateException("an answer with bytes after its end");
    }
    dropped.and(asked);
    boolean isEmpty = false;
    if (dropped.isEmpty()) {
      ScanTasks.mark(scan, tasks);
    } else {
      ScanTasks.Pruned left = view.without(tasks, dropped);
      ScanTasks.replace(scan, left);
      isEmpty = left.isEmpty();
    }
    if (note.length > 0) {
      notes.add(new String(note, "UTF-8"));
    }
    return isEmpty;
  }

  /** Before Iceberg 1.12 on Spark 4.1, a scan of appended files only has the same class. */
  private static boolean isIncremental(Object scan) throws Exception {
    try {
      Field start = scan.getClass().getDeclaredField("startSnapshotId");
      start.setAccessible(true);
      return start.get(scan) != null;
    } catch (NoSuchFieldException e) {
      return false;
    }
  }

  private static Schema schema(Object scan) throws Exception {
    return (Schema) ScanTasks.call(scan, "schema", "expectedSchema");
  }

  private Map request(Object scan, Table table, List filters, Conditions conditions) throws Exception {
    Schema schema = schema(scan);
    boolean caseSensitive = ((Boolean) ScanTasks.call(scan, "caseSensitive")).booleanValue();
    List expressions = new ArrayList();
    Set fields = new HashSet();
    for (Iterator it = filters.iterator(); it.hasNext(); ) {
      Expression filter = (Expression) it.next();
      try {
        Set referenced = Binder.boundReferences(schema.asStruct(), Arrays.asList(new Object[] {filter}), caseSensitive);
        expressions.add(ExpressionParser.toJson(filter));
        fields.addAll(referenced);
      } catch (RuntimeException e) {
        // All filters hold together: a missing one only keeps more row groups.
        LOG.debug("filter not handed to the index: {}", filter, e);
      }
    }
    fields.addAll(conditions.fields);
    Map request = new LinkedHashMap();
    request.put("table", table.name());
    request.put("uuid", table.uuid().toString());
    request.put("snapshot", ScanTasks.call(scan, "snapshotId"));
    request.put("filters", expressions);
    request.put("conditions", conditions.nodes);
    request.put("columns", SchemaParser.toJson(TypeUtil.select(schema, fields)));
    request.put("name_mapping", table.properties().get(TableProperties.DEFAULT_NAME_MAPPING));
    request.put("catalog", configured(CATALOGS + table.name().split("\\.", 2)[0]));
    request.put("session", home);
    request.put("thread", Long.valueOf(Thread.currentThread().getId()));
    return request;
  }

  /** The snapshot of a scan of all its data files, else null; also null in releases that do not say the snapshot. */
  private static Long wholeSnapshot(Table table, Long id, int dataFiles) {
    Snapshot snapshot = id == null ? null : table.snapshot(id.longValue());
    Map summary = snapshot == null ? null : snapshot.summary();
    return summary != null && String.valueOf(dataFiles).equals(summary.get(SnapshotSummary.TOTAL_DATA_FILES_PROP))
        ? id
        : null;
  }

  /** Puts a relation without rows in the place of each scan that has no task left. */
  private static class EmptyScans extends AbstractPartialFunction {
    final Set scans = Collections.newSetFromMap(new IdentityHashMap());

    public boolean isDefinedAt(Object node) {
      return node instanceof DataSourceV2ScanRelation && scans.contains(((DataSourceV2ScanRelation) node).scan());
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
      return isDefinedAt(node)
          ? LocalRelation$.MODULE$.apply(((DataSourceV2ScanRelation) node).output())
          : otherwise.apply(node);
    }
  }
}
