package io.puffinindex.spark;

import io.puffinindex.spark.aggregates.AggregateQuestion;
import io.puffinindex.spark.functions.ColumnFunction;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableProperties;
import org.apache.iceberg.expressions.Binder;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.ExpressionParser;
import org.apache.iceberg.types.TypeUtil;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.connector.read.Scan;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What a query wants of one scan: the content of a request without the row groups. {@code
 * planner/spark/requests/wire.py} describes requests.
 */
public final class ScanQuestion implements Cloneable {
  private static final Logger LOG = LoggerFactory.getLogger("puffin-index");
  private static final String SETTINGS = "spark.puffin-index.";
  private static final String CATALOGS = "spark.sql.catalog.";

  /** A longer filter is not audited. */
  private static final int MOST_CHARACTERS = 100000;

  public final Scan scan;
  public final Table table;

  /** This project's settings in the session that plans, as text. */
  public final Map<String, String> settings;

  /** The ID of the scan's snapshot; null in releases that do not say it. */
  public final Long snapshot;

  /** Functions among the conditions, by number. */
  public final List<ColumnFunction> functions;

  /** How many rows the query wants, and in what order; null if it wants all of them. */
  public Map<String, Object> wanted;

  /** What the query wants of all matching rows together; null if it wants the rows. */
  public AggregateQuestion aggregates;

  /**
   * By the IDs of columns that joins compare with another relation's, the rows of a whole table
   * there, or null.
   */
  private Map<Integer, Long> runtimeFields = new LinkedHashMap<>();

  /** Nodes of the keys that these columns can have, once they are known. */
  private List<Map<String, Object>> runtimeKeys = List.of();

  private final Schema schema;
  private final List<Expression> filters;
  private final List<Map<String, Object>> conditions;
  private final org.apache.spark.sql.catalyst.expressions.Expression filter;
  private final Set<Integer> fields;
  private final Map<String, String> catalog;
  private final boolean caseSensitive;

  /**
   * @param scan a batch scan of Iceberg's
   * @param conditions what the filter above the scan says beyond the scan's own filters
   */
  public ScanQuestion(Scan scan, Conditions conditions) {
    this.scan = scan;
    this.conditions = conditions.nodes;
    filter = conditions.filter;
    functions = conditions.functions;
    fields = conditions.fields;
    table = IcebergScans.table(scan);
    settings = settings();
    schema = IcebergScans.schema(scan);
    filters = IcebergScans.filters(scan);
    catalog = SessionSettings.startingWith(CATALOGS + table.name().split("\\.", 2)[0]);
    caseSensitive = IcebergScans.isCaseSensitive(scan);
    snapshot = IcebergScans.snapshot(scan);
  }

  /** The question about the same scan with keys of joins, which were not known before. */
  public ScanQuestion with(List<Map<String, Object>> keys) throws CloneNotSupportedException {
    ScanQuestion question = (ScanQuestion) super.clone();
    question.runtimeFields = new LinkedHashMap<>();
    question.runtimeKeys = keys;
    question.wanted = null;
    question.aggregates = null;
    return question;
  }

  /**
   * A column whose keys a join may know when the query runs, and the rows of the table with these
   * keys, or null.
   */
  public void addRuntimeField(Integer field, Long rows) {
    runtimeFields.put(
        field, runtimeFields.containsKey(field) ? fewest(runtimeFields.get(field), rows) : rows);
  }

  /**
   * Of several joins of a column, the one with the fewest keys counts; null if one of the numbers
   * is not known.
   */
  public static Long fewest(Long one, Long other) {
    return one == null || other == null ? null : (Long) Math.min(one, other);
  }

  public static Map<String, String> settings() {
    return SessionSettings.startingWith(SETTINGS);
  }

  /**
   * Whether a setting has a value. The planner reads all settings and refuses wrong values. This
   * side looks at some settings itself: `enabled`, because it must switch off a planner that does
   * not answer, `strict`, because trouble on this side must fail the query as well,
   * `merge-pruning`, `side-milliseconds`, and `aggregates`, which saves a question.
   */
  public static boolean says(Map<String, String> settings, String name, String value) {
    String text = settings.get(SETTINGS + name);
    return text != null && text.trim().equalsIgnoreCase(value);
  }

  /** Trouble on this side stops no query, unless the session is strict. */
  public static void tell(boolean isStrict, String what, Throwable trouble) {
    Cancellation.passOn(trouble);
    if (isStrict) {
      throw new IllegalStateException("puffin-index: " + trouble.getMessage(), trouble);
    }
    if (!(trouble instanceof PythonCalls.Unreachable unreachable)) {
      LOG.warn(what, trouble);
    } else if (unreachable.isNews) {
      LOG.warn("no index is used: {}", trouble.getMessage());
    }
  }

  public static boolean isStrict(Map<String, String> settings, boolean otherwise) {
    return settings.containsKey(SETTINGS + "strict") ? says(settings, "strict", "true") : otherwise;
  }

  /**
   * Whether nothing is asked that could leave out a row group. The session of an audit asks about
   * every scan.
   */
  public boolean isEmpty() {
    boolean hasTests = !filters.isEmpty() || !conditions.isEmpty() || !runtimeFields.isEmpty();
    return !says(settings, "sampled", "true") && !hasTests && wanted == null;
  }

  /** What all questions have in common that want the same rows of equal scans. */
  public String wantedRows() {
    if (aggregates != null) {
      return aggregates.key();
    }
    return wanted == null ? "" : wanted.get("rows") + " " + wanted.get("order") + " " + conditions;
  }

  /** Whether some queries of the session are audited: then the planner wants the filter as text. */
  private boolean isAudited() {
    return settings.containsKey(SETTINGS + "audit") && !says(settings, "audit", "0");
  }

  /**
   * The content of a request, for Jackson; an aggregate's is null if the planner would not know all
   * filters.
   */
  public Map<String, Object> request(String home) {
    List<String> expressions = new ArrayList<>();
    Set<Integer> named = new HashSet<>(fields);
    boolean hasAllFilters = true;
    for (Expression filter : filters) {
      try {
        Set<Integer> referenced =
            Binder.boundReferences(schema.asStruct(), List.of(filter), caseSensitive);
        expressions.add(PackedList.inFilter(ExpressionParser.toJson(filter)));
        named.addAll(referenced);
      } catch (RuntimeException e) {
        // All filters hold together: a missing one only keeps more row groups. But no row that it
        // rejects may count.
        hasAllFilters = false;
        LOG.debug("filter not handed to the index: {}", filter, e);
      }
    }
    if (aggregates != null && !hasAllFilters) {
      return null;
    }
    named.addAll(runtimeFields.keySet());
    if (wanted != null && wanted.get("order") != null) {
      named.add((Integer) ((Map<?, ?>) wanted.get("order")).get("field"));
    }
    runtimeKeys.forEach(keys -> named.add((Integer) keys.get("field")));
    String columns = SchemaParser.toJson(TypeUtil.select(schema, named));
    return Lists.map(
        "table", table.name(),
        "uuid", table.uuid().toString(),
        "snapshot", snapshot,
        "filters", expressions,
        "conditions", conditions,
        "runtime_fields", runtimeFields,
        "runtime_keys", runtimeKeys,
        "wanted", hasAllFilters ? wanted : null,
        "aggregates", null,
        "sql", isAudited() ? text() : null,
        "columns", columns,
        "name_mapping", table.properties().get(TableProperties.DEFAULT_NAME_MAPPING),
        "catalog", catalog,
        "settings", settings,
        "session", home,
        "thread", Thread.currentThread().getId());
  }

  /**
   * The filter above the scan as Spark writes it; null where the text would not mean the same
   * elsewhere.
   */
  private String text() {
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
