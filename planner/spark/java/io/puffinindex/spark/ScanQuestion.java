package io.puffinindex.spark;

import io.puffinindex.spark.aggregates.AggregateQuestion;
import io.puffinindex.spark.conditions.Conditions;
import io.puffinindex.spark.scans.IcebergFilters;
import io.puffinindex.spark.scans.IcebergScans;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableProperties;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.types.TypeUtil;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.connector.read.Scan;

/**
 * What a query wants of one scan: the content of a request without the row groups. {@code
 * planner/spark/requests/wire.py} describes requests.
 */
public final class ScanQuestion implements Cloneable {
  private static final String CATALOGS = "spark.sql.catalog.";

  /** A longer filter is not audited. */
  private static final int MOST_CHARACTERS = 100000;

  public final Scan scan;
  public final Table table;

  public final Settings settings = Settings.ofSession();

  /** The ID of the scan's snapshot; null in releases that do not say it. */
  public final Long snapshot;

  public final Conditions conditions;

  /** How many rows the query wants, and in what order; null if it wants all of them. */
  public Node wanted;

  /** What the query wants of all matching rows together; null if it wants the rows. */
  public AggregateQuestion aggregates;

  /** By column that joins compare, the rows of a whole table on the other side, or null. */
  private Map<Integer, Long> runtimeFields = new LinkedHashMap<>();

  /** Nodes of the keys that these columns can have, once they are known. */
  private List<Node> runtimeKeys = List.of();

  private final List<Expression> filters;
  private final Map<String, String> catalog;

  public ScanQuestion(Scan scan, Conditions conditions) {
    this.scan = scan;
    this.conditions = conditions;
    table = IcebergScans.table(scan);
    filters = IcebergScans.filters(scan);
    catalog = Settings.startingWith(CATALOGS + table.name().split("\\.", 2)[0]);
    snapshot = IcebergScans.snapshot(scan);
  }

  /** The question about the same scan with keys of joins, which were not known before. */
  public ScanQuestion with(List<Node> keys) throws CloneNotSupportedException {
    ScanQuestion question = (ScanQuestion) super.clone();
    question.runtimeFields = new LinkedHashMap<>();
    question.runtimeKeys = keys;
    question.wanted = null;
    question.aggregates = null;
    return question;
  }

  /** A column whose keys a join may know later, and the rows of the table with them, or null. */
  public void addRuntimeField(Integer field, Long rows) {
    runtimeFields.put(
        field, runtimeFields.containsKey(field) ? fewest(runtimeFields.get(field), rows) : rows);
  }

  /** Of several joins of a column, the one with the fewest keys counts; null is unknown. */
  public static Long fewest(Long one, Long other) {
    return one == null || other == null ? null : (Long) Math.min(one, other);
  }

  /** Whether no row group could be left out. The session of an audit asks about every scan. */
  public boolean isEmpty() {
    boolean hasTests =
        !filters.isEmpty() || !conditions.nodes.isEmpty() || !runtimeFields.isEmpty();
    return !settings.says("sampled", "true") && !hasTests && wanted == null;
  }

  /** What all questions have in common that want the same rows of equal scans. */
  public String wantedRows() {
    if (aggregates != null) {
      return aggregates.key();
    }
    return wanted == null
        ? ""
        : wanted.get("rows") + " " + wanted.get("order") + " " + conditions.nodes;
  }

  /** The content of a request. */
  public Node request(String home) {
    var schema = IcebergScans.schema(scan);
    Set<Integer> named = new HashSet<>(conditions.fields);
    List<Node> nodes = filters.stream().map(new IcebergFilters(schema, named)::node).toList();
    named.addAll(runtimeFields.keySet());
    if (wanted != null && wanted.get("order") != null) {
      named.add((Integer) ((Map<?, ?>) wanted.get("order")).get("field"));
    }
    runtimeKeys.forEach(keys -> named.add(keys.field()));
    Node request =
        Node.of(
            "table", table.name(),
            "uuid", table.uuid().toString(),
            "name_mapping", table.properties().get(TableProperties.DEFAULT_NAME_MAPPING),
            "columns", SchemaParser.toJson(TypeUtil.select(schema, named)),
            "sql", settings.get("audit", "0").equals("0") ? null : text(conditions.filter),
            "settings", settings.entries(),
            "thread", Thread.currentThread().getId());
    request.putAll(
        Node.of(
            "snapshot", snapshot,
            "filters", nodes,
            "conditions", conditions.nodes,
            "runtime_fields", runtimeFields,
            "runtime_keys", runtimeKeys,
            "wanted", wanted,
            "aggregates", null,
            "catalog", catalog,
            "session", home));
    return request;
  }

  /** The filter as Spark writes it; null where the text would not mean the same elsewhere. */
  private static String text(org.apache.spark.sql.catalyst.expressions.Expression filter) {
    // Code of users runs in queries of users only, and a subquery has no text.
    if (filter == null
        || !filter.deterministic()
        || !Lists.nodes(filter, UserDefinedExpression.class).isEmpty()
        || !Lists.nodes(filter, SubqueryExpression.class).isEmpty()) {
      return null;
    }
    String text =
        filter
            .transform(
                Lists.change(
                    node ->
                        node instanceof AttributeReference column
                            ? column.withQualifier(Lists.of())
                            : null))
            .sql();
    return text.length() > MOST_CHARACTERS ? null : text;
  }
}
