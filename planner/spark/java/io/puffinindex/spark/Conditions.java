package io.puffinindex.spark;

import io.puffinindex.spark.functions.ColumnFunction;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.Schema;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.ElementAt;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetMapValue;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNaN;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.execution.dynamicpruning.PartitionPruning$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * What the filter right above a scan says beyond Iceberg's own filters: tests of map keys, text
 * that is not UTF-8, functions of one column, and the known parts beside an unknown part.
 *
 * <p>A known class of expressions becomes a node if it means the same to the planner and compares
 * columns of the scan with literals of exactly the same type. Any other expression of a single
 * column becomes a function ({@link ColumnFunction}), and the rest becomes unknown nodes. {@code
 * planner/condition/spark/nodes.py} reads the nodes.
 */
public final class Conditions {
  /**
   * Levels of AND within OR within AND. A deeper part is unknown, because readers of JSON recurse.
   */
  private static final int MAX_DEPTH = 50;

  /** A function of more expressions is unknown. */
  private static final int MAX_NODES = 1000;

  private static final int MAX_FUNCTIONS = 50;

  /** The classes of expressions that may name a column. */
  private static final Set<Class<?>> NAMES =
      Set.of(AttributeReference.class, GetStructField.class, GetMapValue.class, ElementAt.class);

  /** The operator of each class of comparisons. */
  private static final Map<Class<?>, String> COMPARISONS =
      Map.of(
          EqualTo.class, "=",
          EqualNullSafe.class, "<=>",
          LessThan.class, "<",
          LessThanOrEqual.class, "<=",
          GreaterThan.class, ">",
          GreaterThanOrEqual.class, ">=",
          StartsWith.class, "starts with");

  /** The node of each class of tests of one value. */
  private static final Map<Class<?>, String> TESTS =
      Map.of(IsNull.class, "is-null", IsNotNull.class, "is-not-null", IsNaN.class, "is-nan");

  /**
   * Iceberg's name of each of Spark's types, without decimals, which have parameters. A string type
   * with a collation or a length is not equal to the one here.
   */
  private static final Map<DataType, String> TYPES =
      Map.of(
          DataTypes.BooleanType, "boolean",
          DataTypes.IntegerType, "int",
          DataTypes.LongType, "long",
          DataTypes.FloatType, "float",
          DataTypes.DoubleType, "double",
          DataTypes.DateType, "date",
          DataTypes.TimestampType, "timestamptz",
          DataTypes.TimestampNTZType, "timestamp",
          DataTypes.StringType, "string",
          DataTypes.BinaryType, "binary");

  /** Conditions that all hold for each row of the answer, as nodes for Jackson. */
  public final List<Map<String, Object>> nodes = new ArrayList<>();

  /** The functions among the nodes, by number. */
  public final List<ColumnFunction> functions = new ArrayList<>();

  /** The ids of all columns that the nodes name; other columns may be among them. */
  public final Set<Integer> fields = new HashSet<>();

  /** What rows of the scan must satisfy, or null. */
  public final Expression filter;

  private final Map<ExprId, AttributeReference> attributes = new HashMap<>();
  private final Schema schema;
  private boolean beyondFilters;

  /** How many nodes are unknown. */
  private int unknown;

  /** How many more expressions of a function may be looked at. */
  private int left;

  /**
   * @param filter what rows of a scan must satisfy, or null
   * @param output the attributes of the scan
   * @param schema the schema of the scan
   * @param isWhole whether to make a node of every condition; otherwise only of those that
   *     Iceberg's filters cannot say
   */
  public Conditions(
      Expression filter,
      scala.collection.Iterable<AttributeReference> output,
      Schema schema,
      boolean isWhole) {
    this.filter = filter;
    this.schema = schema;
    Lists.from(output).forEach(attribute -> attributes.put(attribute.exprId(), attribute));
    // A condition that numbers rows or draws random numbers must see every row.
    if (filter != null && filter.deterministic()) {
      for (Expression conjunct : parts(filter, And.class)) {
        beyondFilters = false;
        Map<String, Object> node = condition(conjunct, 0);
        if (isWhole || (beyondFilters && !isUseless(node))) {
          nodes.add(node);
        }
      }
    }
  }

  private static List<Expression> parts(Expression expression, Class<?> junction) {
    PartitionPruning$ helper = PartitionPruning$.MODULE$;
    return Lists.from(
        junction == And.class
            ? helper.splitConjunctivePredicates(expression)
            : helper.splitDisjunctivePredicates(expression));
  }

  /** Whether a condition rules out no row, because it is unknown. */
  @SuppressWarnings("unchecked") // nodes within nodes
  private static boolean isUseless(Map<String, Object> node) {
    return switch ((String) node.get("node")) {
      case "unknown" -> true;
      case "not" -> isUseless((Map<String, Object>) node.get("part"));
      // AND rules rows out if one part does, OR if every part does.
      case "and" ->
          ((List<Map<String, Object>>) node.get("parts")).stream().allMatch(Conditions::isUseless);
      case "or" ->
          ((List<Map<String, Object>>) node.get("parts")).stream().anyMatch(Conditions::isUseless);
      default -> false;
    };
  }

  private Map<String, Object> condition(Expression expression, int depth) {
    Class<?> type = expression.getClass();
    if (depth > MAX_DEPTH) {
      return unknown(expression);
    }
    if (type == And.class) {
      return junction(expression, type, depth);
    }
    if (type == Or.class || type == Not.class) {
      return functionUnlessKnown(expression, type, depth);
    }
    Map<String, Object> node = null;
    if (COMPARISONS.containsKey(type)) {
      node = comparison(expression, COMPARISONS.get(type));
    } else if (expression instanceof In in) {
      node = membership(in.value(), Lists.from(in.list()));
    } else if (expression instanceof InSet in) {
      DataType own = in.child().dataType();
      List<Expression> members = new ArrayList<>();
      Lists.from(in.hset()).forEach(member -> members.add(new Literal(member, own)));
      node = membership(in.child(), members);
    } else if (TESTS.containsKey(type)) {
      node = test(TESTS.get(type), expression.children().apply(0));
    } else if (expression.dataType().equals(DataTypes.BooleanType)) {
      node = value(expression);
    }
    if (node == null) {
      node = function(expression);
    }
    return node == null ? unknown(expression) : node;
  }

  /**
   * The node of OR or NOT. If all of it is about one column and a part is not known, it is one
   * function.
   */
  private Map<String, Object> functionUnlessKnown(Expression expression, Class<?> type, int depth) {
    int before = functions.size();
    int unknownBefore = unknown;
    Map<String, Object> node =
        type == Or.class
            ? junction(expression, type, depth)
            : Lists.map("node", "not", "part", condition(((Not) expression).child(), depth + 1));
    if (functions.size() == before && unknown == unknownBefore) {
      return node;
    }
    List<ColumnFunction> parts = functions.subList(before, functions.size());
    List<ColumnFunction> kept = new ArrayList<>(parts);
    parts.clear();
    Map<String, Object> function = function(expression);
    if (function == null) {
      functions.addAll(kept);
    }
    return function == null ? node : function;
  }

  /** The node of a condition that names a single column; null for any other condition. */
  private Map<String, Object> function(Expression condition) {
    List<Expression> expressions = new ArrayList<>();
    Set<Map<String, Object>> columns = new HashSet<>();
    left = MAX_NODES;
    if (functions.size() >= MAX_FUNCTIONS
        || !isOfOne(condition, expressions, columns)
        || columns.isEmpty()) {
      return null;
    }
    beyondFilters = true;
    Map<String, Object> column = columns.iterator().next();
    fields.add((Integer) column.get("field"));
    ColumnFunction function = new ColumnFunction(condition, expressions, column, functions.size());
    functions.add(function);
    return function.node;
  }

  /**
   * Whether an expression names one column at most, and may be evaluated elsewhere than in Spark's
   * tasks.
   *
   * @param expressions takes the expressions that name the column
   * @param columns takes the node of the column
   */
  private boolean isOfOne(
      Expression expression, List<Expression> expressions, Set<Map<String, Object>> columns) {
    Map<String, Object> value = NAMES.contains(expression.getClass()) ? value(expression) : null;
    if (value != null) {
      expressions.add(expression);
      columns.add(value);
      return columns.size() == 1;
    }
    if (expression instanceof AttributeReference
        || --left < 0
        || !ColumnFunction.isRepeatable(expression)) {
      return false;
    }
    return Lists.from(expression.children()).stream()
        .allMatch(child -> isOfOne(child, expressions, columns));
  }

  private Map<String, Object> junction(Expression expression, Class<?> type, int depth) {
    List<Map<String, Object>> parts = new ArrayList<>();
    parts(expression, type).forEach(part -> parts.add(condition(part, depth + 1)));
    return Lists.map("node", type == And.class ? "and" : "or", "parts", parts);
  }

  private Map<String, Object> unknown(Expression expression) {
    beyondFilters = true;
    unknown++;
    return Lists.map("node", "unknown", "name", expression.prettyName());
  }

  private Map<String, Object> comparison(Expression expression, String operator) {
    Map<String, Object> left = value(expression.children().apply(0));
    Map<String, Object> right = value(expression.children().apply(1));
    if (left == null || right == null || !left.get("type").equals(right.get("type"))) {
      return null;
    }
    return Lists.map("node", "comparison", "left", left, "operator", operator, "right", right);
  }

  private Map<String, Object> membership(Expression expression, List<Expression> members) {
    Map<String, Object> value = value(expression);
    List<Map<String, Object>> nodes = new ArrayList<>();
    List<Object> values = new ArrayList<>();
    for (Expression member : members) {
      Map<String, Object> node =
          value == null || member.getClass() != Literal.class ? null : value(member);
      if (node == null || !value.get("type").equals(node.get("type"))) {
        return null;
      }
      nodes.add(node);
      values.add(((Literal) member).value());
    }
    String packed = PackedList.of(values);
    return value == null
        ? null
        : Lists.map("node", "in", "value", value, "members", packed == null ? nodes : packed);
  }

  private Map<String, Object> test(String name, Expression expression) {
    Map<String, Object> value = value(expression);
    return value == null ? null : Lists.map("node", name, "value", value);
  }

  /**
   * The node of a column, of the leaf of a struct or of the value of a map's key; null for anything
   * else.
   */
  public Map<String, Object> columnOrKey(Expression expression) {
    Map<String, Object> value = expression.getClass() == Literal.class ? null : value(expression);
    return value == null || !value.get("node").equals("column") ? null : value;
  }

  /**
   * The node of a column, of the value of a map's key or of a literal; null for another expression
   * or type.
   */
  private Map<String, Object> value(Expression expression) {
    if (expression instanceof Literal literal) {
      // Iceberg's filters have this character in place of bytes that are not UTF-8.
      beyondFilters |=
          literal.value() instanceof UTF8String text && text.toString().indexOf('\uFFFD') >= 0;
      return literal(literal.value(), literal.dataType());
    }
    String type = nameOf(expression.dataType());
    boolean isElement = expression instanceof GetMapValue || expression instanceof ElementAt;
    return type != null && isElement
        ? element(expression.children().apply(0), expression.children().apply(1), type)
        : column(expression);
  }

  /** The node of a column or of the leaf of a struct; null for another expression or type. */
  public Map<String, Object> column(Expression expression) {
    String type = nameOf(expression.dataType());
    if (type == null) {
      return null;
    }
    List<String> path = new ArrayList<>();
    Types.NestedField field = field(expression, path);
    return field == null ? null : column(type, field, path);
  }

  private Map<String, Object> element(Expression map, Expression key, String type) {
    if (!(map.dataType() instanceof MapType mapType) || key.getClass() != Literal.class) {
      return null;
    }
    List<String> path = new ArrayList<>();
    Types.NestedField field = field(map, path);
    Map<String, Object> keyNode = value(key);
    if (field == null || keyNode == null || !mapType.keyType().equals(key.dataType())) {
      return null;
    }
    beyondFilters = true;
    Map<String, Object> node = column(type, field, path);
    node.put("key", keyNode);
    return node;
  }

  private Map<String, Object> column(String type, Types.NestedField field, List<String> path) {
    fields.add(field.fieldId());
    return Lists.map("node", "column", "type", type, "field", field.fieldId(), "path", path);
  }

  /** The path of a column's node, as text. */
  @SuppressWarnings("unchecked") // nodes have a list there
  public static String path(Map<String, Object> column) {
    return String.join(".", (List<String>) column.get("path"));
  }

  /**
   * The column of the scan, or the field of a struct, that an expression names; null if it names
   * none.
   */
  private Types.NestedField field(Expression expression, List<String> path) {
    String name = null;
    Types.StructType struct = null;
    if (expression instanceof AttributeReference reference) {
      // The expression's own name is spelled as in the query, which need not be the column's
      // spelling.
      AttributeReference attribute = attributes.get(reference.exprId());
      if (attribute != null && attribute.dataType().equals(reference.dataType())) {
        name = attribute.name();
        struct = schema.asStruct();
      }
    } else if (expression instanceof GetStructField access) {
      Types.NestedField parent = field(access.child(), path);
      if (parent != null && parent.type().isStructType()) {
        name = ((StructType) access.child().dataType()).fields()[access.ordinal()].name();
        struct = parent.type().asStructType();
      }
    }
    path.add(name);
    return name == null ? null : struct.field(name);
  }

  /** The node of a literal, exact to the last bit; null for another type. */
  public static Map<String, Object> literal(Object value, DataType dataType) {
    String type = nameOf(dataType);
    if (type == null) {
      return null;
    }
    Object content = value;
    if (value instanceof Float || value instanceof Double) {
      content = Double.doubleToLongBits(((Number) value).doubleValue());
    } else if (value instanceof Decimal decimal) {
      content = decimal.toJavaBigDecimal().toPlainString();
    } else if (value instanceof UTF8String text) {
      content = Base64.getEncoder().encodeToString(text.getBytes());
    } else if (value instanceof byte[] bytes) {
      content = Base64.getEncoder().encodeToString(bytes);
    }
    return Lists.map("node", "literal", "type", type, "content", content);
  }

  /** Iceberg's name of one of Spark's types; null if no index can be of the type. */
  public static String nameOf(DataType type) {
    return type instanceof DecimalType decimal
        ? "decimal(" + decimal.precision() + "," + decimal.scale() + ")"
        : TYPES.get(type);
  }
}
