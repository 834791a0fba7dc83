package io.puffinindex.spark;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.commons.lang3.reflect.FieldUtils;
import org.apache.iceberg.BaseMetadataTable;
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
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What a query wants of one scan: the content of a request without the row groups. {@code
 * planner/spark/requests/wire.py} describes requests.
 */
public class ScanQuestion implements Cloneable {
  private static final Logger LOG = LoggerFactory.getLogger("puffin-index");
  private static final String SETTINGS = "spark.puffin-index.";
  private static final String CATALOGS = "spark.sql.catalog.";
  /** A longer filter is not audited. */
  private static final int MOST_CHARACTERS = 100000;

  public final Object scan;
  public final Table table;
  /** This project's settings in the session that plans, as text. */
  public final Map settings;
  /** By the IDs of columns that joins compare with another relation's, the rows of a whole table there, or null. */
  public Map runtimeFields = new LinkedHashMap();
  /** Nodes of the keys that these columns can have, once they are known. */
  public List runtimeKeys = new ArrayList();
  /** How many rows the query wants, and in what order; null if it wants all of them. */
  public Map wanted;
  /** What the query wants of all matching rows together; null if it wants the rows. */
  public AggregateQuestion aggregates;

  /** Functions among the conditions, by number. */
  public final List functions;

  private final Schema schema;
  private final List filters;
  private final List conditions;
  private final org.apache.spark.sql.catalyst.expressions.Expression filter;
  private final Set fields = new HashSet();
  private final Map<String, Object> catalog;
  private final boolean caseSensitive;
  private final Object snapshot;

  /**
   * @param scan a batch scan of Iceberg's
   * @param conditions what the filter above the scan says beyond the scan's own filters
   */
  public ScanQuestion(Object scan, Conditions conditions) throws Exception {
    this.scan = scan;
    this.conditions = conditions.nodes;
    filter = conditions.filter;
    functions = conditions.functions;
    table = table(scan);
    settings = settings();
    schema = schema(scan);
    filters = filters(scan);
    catalog = SessionSettings.startingWith(CATALOGS + table.name().split("\\.", 2)[0]);
    caseSensitive = ((Boolean) ScanTasks.call(scan, "caseSensitive")).booleanValue();
    snapshot = ScanTasks.call(scan, "snapshotId");
    fields.addAll(conditions.fields);
  }

  /** The question about the same scan with keys of joins, which were not known before. */
  public ScanQuestion with(List keys) throws Exception {
    ScanQuestion question = (ScanQuestion) super.clone();
    question.runtimeFields = new LinkedHashMap();
    question.runtimeKeys = keys;
    question.wanted = null;
    question.aggregates = null;
    return question;
  }

  /** A column whose keys a join may know when the query runs, and the rows of the table with these keys, or null. */
  public void addRuntimeField(Object field, Long rows) {
    runtimeFields.put(field, runtimeFields.containsKey(field) ? fewest((Long) runtimeFields.get(field), rows) : rows);
  }

  /** Of several joins of a column, the one with the fewest keys counts; null if one of the numbers is not known. */
  public static Long fewest(Long one, Long other) {
    return one == null || other == null ? null : Long.valueOf(Math.min(one.longValue(), other.longValue()));
  }

  public static Table table(Object scan) throws Exception {
    return (Table) ScanTasks.call(scan, "table");
  }

  public static Schema schema(Object scan) throws Exception {
    return (Schema) ScanTasks.call(scan, "schema", "expectedSchema");
  }

  public static List filters(Object scan) throws Exception {
    return (List) ScanTasks.call(scan, "filters", "filterExpressions");
  }

  /** Whether a scan reads something else than the rows of one snapshot, such as a metadata table. */
  public static boolean isOfNoSnapshot(Object scan) throws Exception {
    return table(scan) instanceof BaseMetadataTable || isIncremental(scan);
  }

  /** Before Iceberg 1.12 on Spark 4.1, a scan of appended files only has the same class. */
  private static boolean isIncremental(Object scan) throws Exception {
    Field start = FieldUtils.getDeclaredField(scan.getClass(), "startSnapshotId", true);
    return start != null && start.get(scan) != null;
  }

  public static Map settings() {
    return SessionSettings.startingWith(SETTINGS);
  }

  /**
   * Whether a setting has a value. The planner reads all settings and refuses wrong values. This side looks at some
   * settings itself: `enabled`, because it must switch off a planner that does not answer, `strict`, because trouble on
   * this side must fail the query as well, `merge-pruning`, `side-milliseconds`, and `aggregates`, which saves a
   * question.
   */
  public static boolean says(Map settings, String name, String value) {
    String text = (String) settings.get(SETTINGS + name);
    return text != null && text.trim().equalsIgnoreCase(value);
  }

  /** Trouble on this side stops no query, unless the session is strict. */
  public static void tell(boolean isStrict, String what, Throwable trouble) {
    if (isStrict) {
      throw new IllegalStateException("puffin-index: " + trouble.getMessage(), trouble);
    }
    LOG.warn(what, trouble);
  }

  public static boolean isStrict(Map settings, boolean otherwise) {
    return settings.containsKey(SETTINGS + "strict") ? says(settings, "strict", "true") : otherwise;
  }

  /** Whether nothing is asked that could leave out a row group. The session of an audit asks about every scan. */
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

  public Long snapshot() {
    return (Long) snapshot;
  }

  /** The content of a request, for Jackson; an aggregate's is null if the planner would not know all filters. */
  public Map<String, Object> request(String home) {
    List expressions = new ArrayList();
    Set named = new HashSet(fields);
    boolean hasAllFilters = true;
    for (Expression filter : filters) {
      try {
        Set referenced = Binder.boundReferences(schema.asStruct(), Arrays.asList(filter), caseSensitive);
        expressions.add(PackedList.inFilter(ExpressionParser.toJson(filter)));
        named.addAll(referenced);
      } catch (RuntimeException e) {
        // All filters hold together: a missing one only keeps more row groups. But no row that it rejects may count.
        hasAllFilters = false;
        LOG.debug("filter not handed to the index: {}", filter, e);
      }
    }
    if (aggregates != null && !hasAllFilters) {
      return null;
    }
    named.addAll(runtimeFields.keySet());
    if (wanted != null && wanted.get("order") != null) {
      named.add(((Map) wanted.get("order")).get("field"));
    }
    for (Map keys : runtimeKeys) {
      named.add(keys.get("field"));
    }
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
        "columns", SchemaParser.toJson(TypeUtil.select(schema, named)),
        "name_mapping", table.properties().get(TableProperties.DEFAULT_NAME_MAPPING),
        "catalog", catalog,
        "settings", settings,
        "session", home,
        "thread", Thread.currentThread().getId());
  }

  /** The filter above the scan as Spark writes it; null where the text would not mean the same elsewhere. */
  private String text() {
    if (filter == null || !filter.deterministic()) {
      return null;
    }
    for (Object node : Lists.nodes(filter, org.apache.spark.sql.catalyst.expressions.Expression.class)) {
      // Code of users runs in queries of users only, and a subquery has no text.
      if (node instanceof UserDefinedExpression || node instanceof SubqueryExpression) {
        return null;
      }
    }
    Object plain = filter.transform(new Change(new WithoutQualifiers()));
    String text = ((org.apache.spark.sql.catalyst.expressions.Expression) plain).sql();
    return text.length() > MOST_CHARACTERS ? null : text;
  }

  private static class WithoutQualifiers implements Change.OfNode {
    public Object changed(Object node) {
      List none = Collections.EMPTY_LIST;
      return node instanceof AttributeReference ? ((AttributeReference) node).withQualifier(Lists.of(none)) : null;
    }
  }
}
