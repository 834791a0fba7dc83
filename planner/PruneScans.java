package io.puffinindex.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiFunction;
import java.util.zip.InflaterInputStream;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Table;
import org.apache.iceberg.expressions.Binder;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.ExpressionParser;
import org.apache.iceberg.types.TypeUtil;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.ElementAt;
import org.apache.spark.sql.catalyst.expressions.GetMapValue;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.roaringbitmap.RoaringBitmap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Function1;
import scala.collection.immutable.Nil$;
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
  private static final int ATTEMPTS = 3;

  private final BiFunction planner;
  private final boolean strict;
  private final Map views = new ConcurrentHashMap();

  public PruneScans(BiFunction planner, Boolean strict) {
    this.planner = planner;
    this.strict = strict.booleanValue();
  }

  public String ruleName() {
    return "PuffinIndexPruneScans";
  }

  public TreeNode apply(TreeNode plan) {
    // Scalar subqueries come here one by one, and Spark may merge them afterwards: two that differ in what stands above
    // their scans alone then share a scan.
    visit((LogicalPlan) plan, !(plan instanceof Subquery), new Conditions());
    return plan;
  }

  private void visit(LogicalPlan plan, boolean useConditions, Conditions above) {
    if (plan instanceof DataSourceV2ScanRelation) {
      DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) plan;
      Object scan = relation.scan();
      if (scan.getClass().getName().equals(SCAN)) {
        try {
          prune(scan, above);
        } catch (Throwable e) {
          if (strict) {
            throw new IllegalStateException("puffin-index: " + e.getMessage(), e);
          }
          LOG.warn("index not used, the scan stays as it was: {}", scan, e);
        }
      }
      return;
    }
    Conditions conditions = new Conditions();
    if (useConditions && plan instanceof Filter) {
      conditions.add(((Filter) plan).condition());
    }
    scala.collection.Iterator children = plan.children().iterator();
    while (children.hasNext()) {
      visit((LogicalPlan) children.next(), useConditions, conditions);
    }
  }

  private void prune(Object scan, Conditions conditions) throws Exception {
    List filters = (List) call(scan, "filters");
    if (filters.isEmpty() && conditions.texts.isEmpty()) {
      return;
    }
    List tasks = (List) call(scan, "tasks");
    // The optimizer comes by more than once.
    if (tasks instanceof PrunedTasks || tasks.isEmpty()) {
      return;
    }
    Table table = (Table) call(scan, "table");
    Object uuid = table.uuid();
    Map request = request(scan, table, filters, conditions);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
      View view = (View) views.get(uuid);
      RoaringBitmap candidates = new RoaringBitmap();
      int unindexed = 0;
      for (Iterator it = tasks.iterator(); it.hasNext(); ) {
        FileScanTask task = (FileScanTask) it.next();
        FileEntry entry = view == null ? null : view.entryOf(task);
        if (entry == null) {
          unindexed += task.file().splitOffsets() == null ? 1 : task.file().splitOffsets().size();
        } else {
          candidates.add((long) entry.first, (long) entry.first + entry.count);
        }
      }
      request.put("version", view == null ? "" : view.version);
      request.put("unindexed", Integer.valueOf(unindexed));
      byte[] answer =
          (byte[]) planner.apply(new ObjectMapper().writeValueAsString(request), serialize(candidates));
      if (answer == null || answer.length == 0) {
        return;
      }
      DataInputStream in = new DataInputStream(new ByteArrayInputStream(answer, 1, answer.length - 1));
      if (answer[0] == 'K') {
        RoaringBitmap kept = new RoaringBitmap();
        kept.deserialize(in);
        reset(scan, tasks, view, kept);
        return;
      }
      // The index table has a newer version: take its numbering and ask again.
      views.put(uuid, View.read(in));
    }
    LOG.warn("index not used: the index of {} changes too fast", table.name());
  }

  private static Map request(Object scan, Table table, List filters, Conditions conditions)
      throws Exception {
    Schema schema = (Schema) call(scan, "schema");
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
    for (Iterator it = conditions.columns.iterator(); it.hasNext(); ) {
      Types.NestedField column = schema.findField((String) it.next());
      if (column != null) {
        fields.add(Integer.valueOf(column.fieldId()));
      }
    }
    Map request = new LinkedHashMap();
    request.put("table", table.name());
    request.put("uuid", table.uuid().toString());
    request.put("snapshot", call(scan, "snapshotId"));
    request.put("filters", expressions);
    request.put("conditions", conditions.texts);
    request.put("schema", SchemaParser.toJson(TypeUtil.select(schema, fields)));
    return request;
  }

  private static void reset(Object scan, List tasks, View view, RoaringBitmap kept) throws Exception {
    PrunedTasks pruned = new PrunedTasks();
    for (Iterator it = tasks.iterator(); it.hasNext(); ) {
      FileScanTask task = (FileScanTask) it.next();
      FileEntry entry = view.entryOf(task);
      if (entry == null) {
        pruned.add(task);
        continue;
      }
      int survivors = (int) kept.rangeCardinality((long) entry.first, (long) entry.first + entry.count);
      if (survivors == entry.count) {
        pruned.add(task);
      } else if (survivors > 0) {
        pruned.add(narrow(task, entry, kept));
      }
    }
    method(scan.getClass(), "resetTasks").invoke(scan, new Object[] {pruned});
  }

  /**
   * A task that splits into its surviving row groups only. It lives on the driver: Iceberg splits it before tasks are sent
   * to executors, so they see Iceberg's own classes, with residuals and deletes attached.
   */
  private static FileScanTask narrow(final FileScanTask task, FileEntry entry, RoaringBitmap kept) {
    List offsets = task.file().splitOffsets();
    if (offsets == null || offsets.size() != entry.count || Proxy.isProxyClass(task.getClass())) {
      return task;
    }
    final List survivors = new ArrayList();
    long bytes = 0;
    long sizeBytes = 0;
    long rows = 0;
    int ordinal = 0;
    for (Iterator it = task.split(1L).iterator(); it.hasNext(); ordinal++) {
      FileScanTask part = (FileScanTask) it.next();
      if (kept.contains(entry.first + ordinal)) {
        survivors.add(part);
        bytes += part.length();
        sizeBytes += part.sizeBytes();
        rows += part.estimatedRowsCount();
      }
    }
    if (ordinal != entry.count) {
      return task;
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

  private static byte[] serialize(RoaringBitmap bitmap) throws Exception {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    bitmap.runOptimize();
    bitmap.serialize(new DataOutputStream(bytes));
    return bytes.toByteArray();
  }

  private static Object call(Object target, String name) throws Exception {
    return method(target.getClass(), name).invoke(target, new Object[0]);
  }

  /** Iceberg's scan classes are package-private and declare what is needed in superclasses. */
  private static Method method(Class type, String name) {
    for (Class c = type; c != null; c = c.getSuperclass()) {
      Method[] methods = c.getDeclaredMethods();
      for (int i = 0; i < methods.length; i++) {
        if (methods[i].getName().equals(name) && !methods[i].isBridge()) {
          methods[i].setAccessible(true);
          return methods[i];
        }
      }
    }
    throw new IllegalStateException("no method " + name + " in " + type.getName() + ": unknown Iceberg version");
  }

  /** Of the filter right above a scan, the conjuncts that look into maps, as SQL: Iceberg's filters cannot say them. */
  private static class Conditions {
    final List texts = new ArrayList();
    final Set columns = new HashSet();

    void add(org.apache.spark.sql.catalyst.expressions.Expression condition) {
      if (condition instanceof And) {
        add(((And) condition).left());
        add(((And) condition).right());
      } else if (condition.deterministic() && looksIntoMap(condition)) {
        texts.add(((org.apache.spark.sql.catalyst.expressions.Expression) condition.transform(new Unqualified())).sql());
        scala.collection.Iterator references = condition.references().iterator();
        while (references.hasNext()) {
          columns.add(((Attribute) references.next()).name());
        }
      }
    }

    private static boolean looksIntoMap(org.apache.spark.sql.catalyst.expressions.Expression expression) {
      if (expression instanceof GetMapValue || expression instanceof ElementAt) {
        return true;
      }
      scala.collection.Iterator children = expression.children().iterator();
      while (children.hasNext()) {
        if (looksIntoMap((org.apache.spark.sql.catalyst.expressions.Expression) children.next())) {
          return true;
        }
      }
      return false;
    }
  }

  /** Takes catalog, namespace and table off the names of columns. */
  private static class Unqualified extends AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return node instanceof AttributeReference;
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
      return isDefinedAt(node) ? ((AttributeReference) node).withQualifier(Nil$.MODULE$) : otherwise.apply(node);
    }
  }

  /** Marks the tasks of a scan that has been pruned. */
  private static class PrunedTasks extends ArrayList {}

  /** What the index knows of one data file. */
  private static class FileEntry {
    final int first;
    final int count;
    final long size;
    final long records;

    FileEntry(int first, int count, long size, long records) {
      this.first = first;
      this.count = count;
      this.size = size;
      this.records = records;
    }
  }

  /** The numbering of row groups in one version of an index table. */
  private static class View {
    final String version;
    final Map files;

    View(String version, Map files) {
      this.version = version;
      this.files = files;
    }

    FileEntry entryOf(FileScanTask task) {
      FileEntry entry = (FileEntry) files.get(task.file().location());
      if (entry == null
          || entry.size != task.file().fileSizeInBytes()
          || entry.records != task.file().recordCount()) {
        return null;
      }
      List offsets = task.file().splitOffsets();
      return offsets != null && offsets.size() != entry.count ? null : entry;
    }

    static View read(DataInputStream header) throws Exception {
      DataInputStream in = new DataInputStream(new InflaterInputStream(header));
      String version = in.readUTF();
      int count = in.readInt();
      Map files = new HashMap(count * 2);
      int first = 0;
      for (int i = 0; i < count; i++) {
        byte[] path = new byte[in.readInt()];
        in.readFully(path);
        long size = in.readLong();
        long records = in.readLong();
        int rowGroups = in.readInt();
        files.put(new String(path, "UTF-8"), new FileEntry(first, rowGroups, size, records));
        first += rowGroups;
      }
      return new View(version, files);
    }
  }
}
