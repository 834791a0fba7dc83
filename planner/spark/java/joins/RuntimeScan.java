package io.puffinindex.spark;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.commons.lang3.ClassUtils;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;

/**
 * Stands in the place of an Iceberg scan and takes runtime filters on indexed columns, too.
 *
 * <p>Spark calls {@code filter} with the keys that the other side of a join has, and then {@code toBatch}. Several
 * nodes of a plan may share one scan and have other keys, so the keys must not change the scan: they narrow only the
 * next batch of the thread that called {@code filter}.
 */
public class RuntimeScan implements InvocationHandler {
  /** A join with more keys is not asked about: they become an interval beyond a tenth of them. */
  private static final int MOST_KEYS = 1000000;

  private final SupportsRuntimeV2Filtering scan;
  private final ScanQuestion question;
  private final IndexPlanner planner;
  private final String home;
  private final boolean strict;
  /** Nodes of indexed columns, by the name that runtime filters have for the column ({@link #filterName}). */
  private final Map columns;
  /** The tasks without the keys of any join; null for those of the scan. */
  private final List tasks;
  /** The tasks of the next batch that each thread asks for. */
  private final ThreadLocal narrowed = new ThreadLocal();

  private RuntimeScan(
      ScanQuestion question, Map columns, List tasks, IndexPlanner planner, String home, boolean strict) {
    this.scan = (SupportsRuntimeV2Filtering) question.scan;
    this.question = question;
    this.columns = columns;
    this.tasks = tasks;
    this.planner = planner;
    this.home = home;
    this.strict = strict;
  }

  /**
   * A scan that also takes runtime filters on some columns.
   *
   * @param columns nodes of columns of the scan, by the name that runtime filters have for the column
   * @param tasks what the query reads of the scan, which may be less than the scan's filters say; null for all tasks
   */
  public static Scan of(
      ScanQuestion question, Map columns, List tasks, IndexPlanner planner, String home, boolean strict) {
    List interfaces = new ArrayList();
    for (Class type : ClassUtils.getAllInterfaces(question.scan.getClass())) {
      if (Modifier.isPublic(type.getModifiers())) {
        interfaces.add(type);
      }
    }
    return (Scan)
        Proxy.newProxyInstance(
            Scan.class.getClassLoader(),
            (Class[]) interfaces.toArray(new Class[0]),
            new RuntimeScan(question, columns, tasks, planner, home, strict));
  }

  /** What a runtime filter calls a column that it compares; a filter by keys has the column's own name. */
  public static String filterName(String column, String operator) {
    return operator.equals("=") ? column : column + " " + operator;
  }

  /** Whether a scan takes runtime filters of a name. */
  public static boolean takes(Object scan, String filterName) {
    RuntimeScan handler = handler(scan);
    return handler != null && handler.columns.containsKey(filterName);
  }

  /** Whether a scan reads one snapshot of an Iceberg table, and so the same rows each time. */
  public static boolean isOfSnapshot(Object scan) {
    // Iceberg answers some aggregates from the metadata of a snapshot by a scan of a class of its own.
    return ScanTasks.isBatchScan(scan)
        || handler(scan) != null
        || scan.getClass().getName().equals("org.apache.iceberg.spark.source.SparkLocalScan");
  }

  /** The tasks that a LIMIT has left of a scan that waits for no keys; null for any other scan. */
  public static List tasksOfLimit(Object scan) {
    RuntimeScan handler = handler(scan);
    return handler == null || !handler.columns.isEmpty() ? null : handler.tasks;
  }

  /** The scan that a LIMIT has left fewer tasks of; see {@link #tasksOfLimit}. */
  public static Scan whole(Object scan) {
    return handler(scan).scan;
  }

  private static RuntimeScan handler(Object scan) {
    InvocationHandler handler = ScanTasks.handlerOf(scan);
    return handler instanceof RuntimeScan ? (RuntimeScan) handler : null;
  }

  public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
    String name = method.getName();
    if (name.equals("filterAttributes")) {
      return filterAttributes();
    }
    if (name.equals("filter") && arguments.length == 1 && arguments[0] instanceof Predicate[]) {
      filter((Predicate[]) arguments[0]);
      return null;
    }
    if (name.equals("toBatch")) {
      List narrowedTasks = (List) narrowed.get();
      narrowed.remove();
      if (narrowedTasks != null) {
        return ScanTasks.batchOf(scan, narrowedTasks);
      }
      if (tasks != null) {
        return Proxy.newProxyInstance(
            Batch.class.getClassLoader(),
            new Class[] {Batch.class},
            new FewerRows(ScanTasks.batchOf(scan, tasks), question.wantedRows()));
      }
    }
    if (name.equals("equals")) {
      // Spark drops a new node that is equal to the old one, so a scan without runtime filters must not be equal.
      RuntimeScan other = handler(arguments[0]);
      return Boolean.valueOf(
          other != null && scan.equals(other.scan) && question.wantedRows().equals(other.question.wantedRows()));
    }
    return ScanTasks.forward(scan, method, arguments);
  }

  private NamedReference[] filterAttributes() {
    List references = new ArrayList(Arrays.asList((Object[]) scan.filterAttributes()));
    for (String name : columns.keySet()) {
      references.add(Expressions.column(quoted(name)));
    }
    return (NamedReference[]) references.toArray(new NamedReference[0]);
  }

  private static String quoted(String name) {
    return "`" + name.replace("`", "``") + "`";
  }

  /** Narrow the next batch of this thread to what a join can need. Iceberg takes the filters on partition columns. */
  private void filter(Predicate[] predicates) {
    narrowed.remove();
    List partition = new ArrayList();
    List keys = new ArrayList();
    Set own = names(scan.filterAttributes());
    for (int i = 0; i < predicates.length; i++) {
      String column = column(predicates[i]);
      boolean isOfKeys = column != null && predicates[i].name().equals("IN");
      Map<String, Object> node = isOfKeys ? (Map) columns.get(column) : null;
      if (column == null || own.contains(column)) {
        partition.add(predicates[i]);
      }
      if (node != null && predicates[i].children().length <= MOST_KEYS) {
        keys.add(keys(node, predicates[i].children()));
      }
    }
    if (!partition.isEmpty()) {
      scan.filter((Predicate[]) partition.toArray(new Predicate[0]));
    }
    try {
      List tasks = this.tasks == null ? ScanTasks.of(scan) : this.tasks;
      if (keys.isEmpty() || tasks.isEmpty() || planner.isNotToBeAsked(question.table, question.settings)) {
        return;
      }
      IndexPlanner.Answer answer = (IndexPlanner.Answer) planner.ask(question.with(keys), tasks, home);
      if (answer != null && !answer.keepsAll()) {
        narrowed.set(answer.left(tasks));
      }
    } catch (Throwable e) {
      ScanQuestion.tell(strict, "index not used, the scan reads what it read without runtime keys: " + scan, e);
    }
  }

  private static Set names(NamedReference[] references) {
    Set names = new LinkedHashSet();
    for (int i = 0; i < references.length; i++) {
      if (references[i].fieldNames().length == 1) {
        names.add(references[i].fieldNames()[0]);
      }
    }
    return names;
  }

  /** The top-level column that a runtime filter tests; null if the filter tests something else. */
  private static String column(Predicate predicate) {
    Expression[] children = predicate.children();
    if (children.length == 0 || !(children[0] instanceof NamedReference)) {
      return null;
    }
    String[] names = ((NamedReference) children[0]).fieldNames();
    if (names.length != 1) {
      return null;
    }
    // Spark quotes names that are no words.
    String name = names[0];
    boolean isQuoted = name.length() > 1 && name.startsWith("`") && name.endsWith("`");
    return isQuoted ? name.substring(1, name.length() - 1).replace("``", "`") : name;
  }

  /** The node of a column's keys: literals all of the column's type. */
  private static Map keys(Map<String, Object> column, Expression[] children) {
    List contents = new ArrayList();
    List values = new ArrayList();
    for (int i = 1; i < children.length; i++) {
      Literal literal = (Literal) children[i];
      if (literal.value() != null) {
        Map<String, Object> node = Conditions.literal(literal.value(), literal.dataType());
        if (node == null || !node.get("type").equals(column.get("type"))) {
          throw new IllegalStateException("a join key of type " + literal.dataType() + " for column " + column);
        }
        contents.add(node.get("content"));
        values.add(literal.value());
      }
    }
    Object packed = PackedList.of(values);
    Map<String, Object> keys = new LinkedHashMap(column);
    keys.put("keys", packed == null ? contents : packed);
    return keys;
  }

  /**
   * A batch of a query that wants only some rows. Spark runs equal batches once, and Iceberg's batches are equal if
   * their scans have the same filters.
   */
  private static class FewerRows implements InvocationHandler {
    private final Batch batch;
    private final String wanted;

    FewerRows(Batch batch, String wanted) {
      this.batch = batch;
      this.wanted = wanted;
    }

    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
      if (method.getName().equals("equals")) {
        InvocationHandler other = ScanTasks.handlerOf(arguments[0]);
        return Boolean.valueOf(
            other instanceof FewerRows
                && batch.equals(((FewerRows) other).batch)
                && wanted.equals(((FewerRows) other).wanted));
      }
      return ScanTasks.forward(batch, method, arguments);
    }
  }
}
