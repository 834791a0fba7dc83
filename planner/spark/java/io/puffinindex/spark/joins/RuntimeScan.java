package io.puffinindex.spark.joins;

import io.puffinindex.spark.IndexPlanner;
import io.puffinindex.spark.Lists;
import io.puffinindex.spark.Node;
import io.puffinindex.spark.PruneScans;
import io.puffinindex.spark.ScanQuestion;
import io.puffinindex.spark.conditions.Conditions;
import io.puffinindex.spark.conditions.PackedList;
import io.puffinindex.spark.pages.FewRowsBatch;
import io.puffinindex.spark.pages.WantedRowGroup;
import io.puffinindex.spark.scans.IcebergScans;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.commons.lang3.ClassUtils;
import org.apache.iceberg.FileScanTask;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.FieldReference;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;

/**
 * Stands in the place of an Iceberg scan and takes runtime filters on indexed columns, too.
 *
 * <p>Spark calls {@code filter} with the keys that the other side of a join has, and then {@code
 * toBatch}. Several nodes of a plan may share one scan and have other keys, so the keys must not
 * change the scan: they narrow only the next batch of the thread that called {@code filter}.
 *
 * @param columns nodes of indexed columns, by {@link #filterName}
 * @param tasks the tasks without the keys of any join; null for those of the scan
 * @param fewRows row groups of which few rows are wanted without these keys, by location of the
 *     data file
 * @param narrowed the next batch that each thread asks for
 */
public record RuntimeScan(
    PruneScans rule,
    ScanQuestion question,
    Map<String, Node> columns,
    List<FileScanTask> tasks,
    Map<String, List<WantedRowGroup>> fewRows,
    ThreadLocal<Batch> narrowed)
    implements InvocationHandler {
  /** A join with more keys is not asked about: they become an interval beyond a tenth of them. */
  private static final int MOST_KEYS = 1000000;

  /**
   * A scan that takes runtime filters on some columns, too.
   *
   * @param tasks what the query reads, which may be less than the scan's filters say; null for all
   * @param fewRows row groups of which few rows are wanted, by location of the data file
   */
  public static Scan of(
      PruneScans rule,
      ScanQuestion question,
      Map<String, Node> columns,
      List<FileScanTask> tasks,
      Map<String, List<WantedRowGroup>> fewRows) {
    Class<?>[] interfaces =
        ClassUtils.getAllInterfaces(question.scan.getClass()).stream()
            .filter(type -> Modifier.isPublic(type.getModifiers()))
            .toArray(Class<?>[]::new);
    RuntimeScan handler =
        new RuntimeScan(rule, question, columns, tasks, fewRows, new ThreadLocal<>());
    return (Scan) Proxy.newProxyInstance(Scan.class.getClassLoader(), interfaces, handler);
  }

  /** The scan in whose place this one stands. */
  public SupportsRuntimeV2Filtering scan() {
    return (SupportsRuntimeV2Filtering) question.scan;
  }

  /** The name of a runtime filter; one by keys has the column's own name. */
  public static String filterName(String column, String operator) {
    return operator.equals("=") ? column : column + " " + operator;
  }

  /** Whether a scan takes runtime filters of a name. */
  public static boolean takes(Scan scan, String filterName) {
    RuntimeScan handler = handler(scan);
    return handler != null && handler.columns.containsKey(filterName);
  }

  /** Whether a scan reads one snapshot of an Iceberg table, and so the same rows each time. */
  public static boolean isOfSnapshot(Scan scan) {
    return IcebergScans.isBatchScan(scan)
        || handler(scan) != null
        || IcebergScans.isLocalScan(scan);
  }

  /** A scan that a LIMIT has left fewer tasks of, and that waits for no keys; null for another. */
  public static RuntimeScan ofLimit(Scan scan) {
    RuntimeScan handler = handler(scan);
    return handler == null || !handler.columns.isEmpty() || handler.tasks == null ? null : handler;
  }

  /** A plan with other scans in the place of some, or no rows where the other scan is null. */
  public static LogicalPlan inPlan(LogicalPlan plan, IdentityHashMap<Scan, Scan> replacements) {
    return plan.transform(
        Lists.change(
            node -> {
              if (!(node instanceof DataSourceV2ScanRelation relation)
                  || !replacements.containsKey(relation.scan())) {
                return null;
              }
              Scan scan = replacements.get(relation.scan());
              return scan == null
                  ? LocalRelation$.MODULE$.apply(
                      Lists.of(new ArrayList<Attribute>(Lists.from(relation.output()))))
                  : relation.copy(
                      relation.relation(),
                      scan,
                      relation.output(),
                      relation.keyGroupedPartitioning(),
                      relation.ordering());
            }));
  }

  private static RuntimeScan handler(Object scan) {
    return IcebergScans.handlerOf(scan) instanceof RuntimeScan handler ? handler : null;
  }

  @Override
  public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
    String name = method.getName();
    if (name.equals("filterAttributes")) {
      return filterAttributes();
    }
    if (name.equals("filter")
        && arguments.length == 1
        && arguments[0] instanceof Predicate[] predicates) {
      filter(predicates);
      return null;
    }
    if (name.equals("toBatch")) {
      Batch batch = narrowed.get();
      narrowed.remove();
      return batch == null ? batch(tasks, fewRows) : batch;
    }
    if (name.equals("equals")) {
      // Spark drops a new node that is equal to the old one.
      RuntimeScan other = handler(arguments[0]);
      return other != null
          && scan().equals(other.scan())
          && question.wantedRows().equals(other.question.wantedRows());
    }
    return IcebergScans.forward(scan(), method, arguments);
  }

  private Batch batch(List<FileScanTask> tasks, Map<String, List<WantedRowGroup>> fewRows)
      throws IllegalAccessException {
    Batch batch = tasks == null ? scan().toBatch() : IcebergScans.batchOf(scan(), tasks);
    return new FewRowsBatch(batch, question.wantedRows(), fewRows);
  }

  private NamedReference[] filterAttributes() {
    Stream<NamedReference> own = columns.keySet().stream().map(name -> FieldReference.column(name));
    return Stream.concat(Stream.of(scan().filterAttributes()), own).toArray(NamedReference[]::new);
  }

  /** Narrow the next batch of this thread; Iceberg takes the filters on partition columns. */
  private void filter(Predicate[] predicates) {
    var scan = scan();
    narrowed.remove();
    List<Predicate> partition = new ArrayList<>();
    List<Node> keys = new ArrayList<>();
    List<NamedReference> own = List.of(scan.filterAttributes());
    for (Predicate predicate : predicates) {
      String column = column(predicate);
      boolean isOfKeys = column != null && predicate.name().equals("IN");
      Node node = isOfKeys ? columns.get(column) : null;
      if (column == null || own.contains(FieldReference.column(column))) {
        partition.add(predicate);
      }
      if (node != null && predicate.children().length <= MOST_KEYS) {
        keys.add(keys(node, predicate.children()));
      }
    }
    if (!partition.isEmpty()) {
      scan.filter(partition.toArray(new Predicate[0]));
    }
    try {
      List<FileScanTask> tasks = this.tasks == null ? IcebergScans.tasks(scan) : this.tasks;
      if (keys.isEmpty()
          || tasks.isEmpty()
          || rule.planner.isNotToBeAsked(question.table, question.settings)) {
        return;
      }
      IndexPlanner.Answer answer = rule.ask(question.with(keys), tasks);
      if (answer == null) {
        return;
      }
      var fewer = answer.fewRows(tasks);
      if (!answer.keepsAll() || !fewer.isEmpty()) {
        narrowed.set(batch(answer.left(tasks), fewer));
      }
    } catch (Throwable e) {
      rule.tell("index not used, the scan reads what it read without runtime keys: " + scan, e);
    }
  }

  /** The top-level column that a runtime filter tests; null if the filter tests something else. */
  private static String column(Predicate predicate) {
    Expression[] children = predicate.children();
    if (children.length == 0
        || !(children[0] instanceof NamedReference reference)
        || reference.fieldNames().length != 1) {
      return null;
    }
    // Spark quotes names that are no words.
    String name = reference.fieldNames()[0];
    boolean isQuoted = name.length() > 1 && name.startsWith("`") && name.endsWith("`");
    return isQuoted ? name.substring(1, name.length() - 1).replace("``", "`") : name;
  }

  /** The node of a column's keys: literals all of the column's type. */
  private static Node keys(Node column, Expression[] children) {
    List<Object> values = new ArrayList<>();
    for (int i = 1; i < children.length; i++) {
      Literal<?> literal = (Literal<?>) children[i];
      if (literal.value() != null) {
        if (!column.type().equals(Conditions.nameOf(literal.dataType()))) {
          throw new IllegalStateException(
              "a join key of type " + literal.dataType() + " for column " + column);
        }
        values.add(literal.value());
      }
    }
    Object keys = PackedList.of(values, () -> values.stream().map(Conditions::content).toList());
    return column.with("keys", keys);
  }
}
