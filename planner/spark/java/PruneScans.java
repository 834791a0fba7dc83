package io.puffinindex.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
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
import org.apache.iceberg.BaseFileScanTask;
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
import org.roaringbitmap.PeekableIntIterator;
import org.roaringbitmap.RoaringBitmap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;

/**
 * An optimizer rule that takes row groups out of Iceberg scans. Compiled by Janino: no generics, no lambdas.
 *
 * <p>Both sides number the row groups of one version of an index table alike ({@link View}). A scan's row groups go to the
 * planner as a bitmap of these numbers with the scan's filters, and come back as a bitmap. Data files that the view does
 * not know, or not as they are, are read whole. Whatever fails leaves the scan as it was.
 */
public class PruneScans extends Rule {
  private static final Logger LOG = LoggerFactory.getLogger("puffin-index");
  private static final String SCAN = "org.apache.iceberg.spark.source.SparkBatchQueryScan";
  private static final String SETTINGS = "spark.puffin-index.";
  private static final String CATALOGS = "spark.sql.catalog.";
  private static final int ATTEMPTS = 5;
  private static final int ABSENT_REMEMBERED = 10000;
  /** Found before any scan is reported on: what is reported as dropped must not be read for want of this method. */
  private static final Method NEW_SPLIT = method(BaseFileScanTask.class, "newSplitTask");

  private final String hook;
  private final String home;
  private final BiFunction planner;
  private final boolean strict;
  private final double absenceSeconds;
  private final ObjectMapper json = new ObjectMapper();
  /** By name and UUID: one table may have several names, and an index under one of them. */
  private final Map views;
  /** When tables were last seen to have no index, by name and UUID. */
  private final Map absent;
  private final JobNotes notes;
  private final AtomicBoolean ended;

  /**
   * @param hook names what answers on the other side
   * @param home names the session that this is for, and those that Spark copies from it
   */
  public PruneScans(String hook, String home, BiFunction planner, Boolean strict, Double absenceSeconds) {
    this.hook = hook;
    this.home = home;
    this.planner = planner;
    this.strict = strict.booleanValue();
    this.absenceSeconds = absenceSeconds.doubleValue();
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
    this.absenceSeconds = other.absenceSeconds;
    views = other.views;
    absent = other.absent;
    notes = other.notes;
    ended = other.ended;
  }

  /** The same rule for another session, which ends with this one. */
  public PruneScans of(String session) {
    return new PruneScans(this, session);
  }

  public String hook() {
    return hook;
  }

  public String home() {
    return home;
  }

  /** Do nothing from now on, in whichever sessions this is. */
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
    // Scalar subqueries come here one by one, and Spark may merge them afterwards: two that differ in what stands above
    // their scans alone then share a scan.
    visit((LogicalPlan) plan, !(plan instanceof Subquery), null, empty);
    // Spark still has to rewrite correlated ones, and must see their aggregates: a count of no rows is 0, not NULL.
    return empty.scans.isEmpty() || plan instanceof Subquery ? plan : withoutScans((LogicalPlan) plan, empty);
  }

  /** The plan without those scans that nothing is left of, and without what then has no rows either. */
  private LogicalPlan withoutScans(LogicalPlan plan, EmptyScans empty) {
    try {
      return PropagateEmptyRelation.apply((LogicalPlan) plan.transform(empty));
    } catch (RuntimeException e) {
      if (isOn(settings(), "strict", strict)) {
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
      if (scan.getClass().getName().equals(SCAN)) {
        Map settings = settings();
        try {
          if (prune(scan, settings, above, relation.output())) {
            empty.scans.add(scan);
          }
        } catch (Throwable e) {
          if (isOn(settings, "strict", strict)) {
            throw new IllegalStateException("puffin-index: " + e.getMessage(), e);
          }
          LOG.warn("index not used, the scan stays as it was: {}", scan, e);
        }
      }
      return;
    }
    org.apache.spark.sql.catalyst.expressions.Expression condition =
        useConditions && plan instanceof Filter ? ((Filter) plan).condition() : null;
    // What changes rows may want the scan that it has planned its writing with.
    EmptyScans leftOut = plan instanceof RowLevelWrite ? new EmptyScans() : empty;
    scala.collection.Iterator children = plan.children().iterator();
    while (children.hasNext()) {
      visit((LogicalPlan) children.next(), useConditions, condition, leftOut);
    }
  }

  /** The session's settings of this project, as they are now, without their prefix. */
  private static Map settings() {
    return settingsBelow(SETTINGS);
  }

  /** The session's settings that begin with a prefix, as they are now, without it. */
  private static Map settingsBelow(String prefix) {
    Map settings = new HashMap();
    Map all = SQLConf.get().settings();
    // Other threads may change the configuration; it is a synchronized map.
    synchronized (all) {
      for (Iterator it = all.entrySet().iterator(); it.hasNext(); ) {
        Map.Entry entry = (Map.Entry) it.next();
        String key = (String) entry.getKey();
        if (key.startsWith(prefix)) {
          settings.put(key.substring(prefix.length()), entry.getValue());
        }
      }
    }
    return settings;
  }

  private static boolean isOn(Map settings, String name, boolean otherwise) {
    String value = (String) settings.get(name);
    return value == null ? otherwise : value.trim().equalsIgnoreCase("true");
  }

  /** Take row groups out of a scan; say whether nothing is left of it. */
  private boolean prune(
      Object scan,
      Map settings,
      org.apache.spark.sql.catalyst.expressions.Expression above,
      scala.collection.Iterable output)
      throws Exception {
    List filters = (List) call(scan, "filters", "filterExpressions");
    Table table = (Table) call(scan, "table");
    // Metadata tables are scanned by the same class, but what they read are no data files.
    boolean nothingAsked = filters.isEmpty() && above == null;
    if (nothingAsked || table instanceof BaseMetadataTable || isIncremental(scan)) {
      return false;
    }
    String key = table.name() + " " + table.uuid();
    if (isOff(settings) || isKnownToBeAbsent(key, settings)) {
      return false;
    }
    List tasks = (List) call(scan, "tasks");
    // The optimizer comes by more than once.
    if (tasks instanceof PrunedTasks) {
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
    request.put("session", home);
    request.put("catalog", settingsBelow(CATALOGS + table.name().split("\\.", 2)[0]));
    request.put("thread", Long.valueOf(Thread.currentThread().getId()));
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
      DataInputStream in = new DataInputStream(new ByteArrayInputStream(answer, 1, answer.length - 1));
      if (answer[0] == 'A') {
        if (absent.size() >= ABSENT_REMEMBERED) {
          absent.clear();
        }
        absent.put(key, Long.valueOf(System.nanoTime()));
        return false;
      }
      if (answer[0] == 'K') {
        byte[] note = new byte[in.readUnsignedShort()];
        in.readFully(note);
        RoaringBitmap kept = new RoaringBitmap();
        kept.deserialize(in);
        boolean isEmpty = reset(scan, tasks, view, RoaringBitmap.andNot(candidates.rowGroups, kept));
        if (note.length > 0) {
          notes.add(new String(note, "UTF-8"));
        }
        return isEmpty;
      }
      // The index table has a newer version: take its numbering and ask again.
      views.put(key, View.read(in));
    }
    LOG.warn("index not used: the index of {} changes too fast", table.name());
    return false;
  }

  private static boolean isOff(Map settings) {
    String enabled = (String) settings.get("enabled");
    return enabled != null && enabled.trim().equalsIgnoreCase("false");
  }

  private boolean isKnownToBeAbsent(String key, Map settings) {
    Long seen = (Long) absent.get(key);
    if (seen == null) {
      return false;
    }
    double seconds = absenceSeconds;
    if (settings.containsKey("absence-seconds")) {
      try {
        seconds = Double.parseDouble((String) settings.get("absence-seconds"));
      } catch (NumberFormatException e) {
        // The planner will say so.
        return false;
      }
    }
    return System.nanoTime() - seen.longValue() < seconds * 1e9;
  }

  /** Before Iceberg 1.12 on Spark 4.1 a scan of appended files only had the same class. */
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
    return (Schema) call(scan, "schema", "expectedSchema");
  }

  private static Map request(Object scan, Table table, List filters, Conditions conditions)
      throws Exception {
    Schema schema = schema(scan);
    boolean caseSensitive = ((Boolean) call(scan, "caseSensitive")).booleanValue();
    List expressions = new ArrayList();
    Set fields = new HashSet();
    for (Iterator it = filters.iterator(); it.hasNext(); ) {
      Expression filter = (Expression) it.next();
      try {
        Set referenced = Binder.boundReferences(schema.asStruct(), Arrays.asList(new Object[] {filter}), caseSensitive);
        expressions.add(ExpressionParser.toJson(filter));
        fields.addAll(referenced);
      } catch (RuntimeException e) {
        // All filters hold together, so one less only keeps more.
        LOG.debug("filter not handed to the index: {}", filter, e);
      }
    }
    fields.addAll(conditions.fields);
    Map request = new LinkedHashMap();
    request.put("table", table.name());
    request.put("uuid", table.uuid().toString());
    request.put("snapshot", call(scan, "snapshotId"));
    request.put("filters", expressions);
    request.put("conditions", conditions.nodes);
    request.put("name-mapping", table.properties().get(TableProperties.DEFAULT_NAME_MAPPING));
    request.put("schema", SchemaParser.toJson(TypeUtil.select(schema, fields)));
    return request;
  }

  /** The snapshot of a scan if all its data files are scanned, else null; some releases do not say the snapshot. */
  private static Long wholeSnapshot(Table table, Long id, int dataFiles) {
    Snapshot snapshot = id == null ? null : table.snapshot(id.longValue());
    Map summary = snapshot == null ? null : snapshot.summary();
    return summary != null && String.valueOf(dataFiles).equals(summary.get(SnapshotSummary.TOTAL_DATA_FILES_PROP))
        ? id
        : null;
  }

  /**
   * Take row groups out of a scan; one that was not asked about stays, whatever the summary of its snapshot says.
   *
   * @return whether nothing is left
   */
  private static boolean reset(Object scan, List tasks, View view, RoaringBitmap dropped) throws Exception {
    if (dropped.isEmpty()) {
      // Nothing changes: the groups that Iceberg has made of these tasks stay.
      markTasks(scan, new PrunedTasks(tasks));
      return false;
    }
    BitSet gone = new BitSet();
    for (PeekableIntIterator it = dropped.getIntIterator(); it.hasNext(); ) {
      gone.set(it.next());
    }
    View.FileEntry[] entries = view.entries(tasks);
    PrunedTasks pruned = new PrunedTasks(new ArrayList());
    for (int i = 0; i < entries.length; i++) {
      FileScanTask task = (FileScanTask) tasks.get(i);
      View.FileEntry entry = entries[i];
      if (entry == null) {
        pruned.add(task);
        continue;
      }
      int survivors = 0;
      for (int rowGroup = entry.first; rowGroup < entry.first + entry.count; rowGroup++) {
        survivors += gone.get(rowGroup) ? 0 : 1;
      }
      if (survivors == entry.count) {
        pruned.add(task);
      } else if (survivors > 0) {
        pruned.add(narrow(task, entry, gone));
      }
    }
    method(scan.getClass(), "resetTasks").invoke(scan, new Object[] {pruned});
    return pruned.isEmpty();
  }

  private static void markTasks(Object scan, PrunedTasks tasks) throws Exception {
    for (Class c = scan.getClass(); c != null; c = c.getSuperclass()) {
      try {
        Field field = c.getDeclaredField("tasks");
        field.setAccessible(true);
        field.set(scan, tasks);
        return;
      } catch (NoSuchFieldException e) {
        LOG.trace("{} has no tasks", c);
      }
    }
  }

  /**
   * A task that splits into its surviving row groups only. It lives on the driver: Iceberg splits it before tasks are sent
   * to executors, so they see Iceberg's own classes, with residuals and deletes attached. Ranges of bytes come from the
   * index: manifests may list none, and those that they list need not be those that a reader goes by.
   */
  private static FileScanTask narrow(final FileScanTask task, View.FileEntry entry, BitSet gone) throws Exception {
    long[][] ranges = entry.ranges();
    final List survivors = new ArrayList();
    long bytes = 0;
    long sizeBytes = 0;
    long rows = 0;
    for (int i = 0; i < ranges.length; i++) {
      if (!gone.get(entry.first + i)) {
        Object[] range = {task, Long.valueOf(ranges[i][0]), Long.valueOf(ranges[i][1])};
        FileScanTask part = (FileScanTask) NEW_SPLIT.invoke(task, range);
        survivors.add(part);
        bytes += part.length();
        sizeBytes += part.sizeBytes();
        rows += part.estimatedRowsCount();
      }
    }
    final Map sums = new HashMap();
    sums.put("length", Long.valueOf(bytes));
    sums.put("sizeBytes", Long.valueOf(sizeBytes));
    sums.put("estimatedRowsCount", Long.valueOf(rows));
    InvocationHandler handler =
        new InvocationHandler() {
          public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
            String name = method.getName();
            if (name.equals("split")) {
              return survivors;
            }
            if (name.equals("equals")) {
              return Boolean.valueOf(proxy == arguments[0]);
            }
            Object sum = sums.get(name);
            if (sum != null) {
              return sum;
            }
            try {
              return method.invoke(task, arguments);
            } catch (InvocationTargetException e) {
              throw e.getCause();
            }
          }
        };
    return (FileScanTask)
        Proxy.newProxyInstance(FileScanTask.class.getClassLoader(), new Class[] {FileScanTask.class}, handler);
  }

  private static Object call(Object target, String name) throws Exception {
    return call(target, name, name);
  }

  /** Call a method that has had another name. */
  private static Object call(Object target, String name, String earlierName) throws Exception {
    Method method = find(target.getClass(), name);
    return (method == null ? method(target.getClass(), earlierName) : method).invoke(target, new Object[0]);
  }

  private static Method method(Class type, String name) {
    Method method = find(type, name);
    if (method == null) {
      throw new IllegalStateException("no method " + name + " in " + type.getName() + ": unknown Iceberg version");
    }
    return method;
  }

  /** Iceberg's scan classes are package-private and declare what is needed in superclasses. */
  private static Method find(Class type, String name) {
    for (Class c = type; c != null; c = c.getSuperclass()) {
      Method[] methods = c.getDeclaredMethods();
      for (int i = 0; i < methods.length; i++) {
        if (methods[i].getName().equals(name) && !methods[i].isBridge()) {
          methods[i].setAccessible(true);
          return methods[i];
        }
      }
    }
    return null;
  }

  /** Puts a relation without rows in the place of scans that nothing is left of. */
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

  /** Marks the tasks of a scan that has been pruned. */
  private static class PrunedTasks extends ArrayList {
    PrunedTasks(List tasks) {
      super(tasks);
    }
  }
}
