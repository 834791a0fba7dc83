package io.puffinindex.spark.conditions;

import io.puffinindex.spark.Lists;
import io.puffinindex.spark.Node;
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
  /** Levels of AND within OR within AND that readers of JSON take; deeper parts are unknown. */
  public static final int MAX_DEPTH = 50;

  /** A function of more expressions is unknown. */
  private static final int MAX_NODES = 1000;

  private static final int MAX_FUNCTIONS = 50;

  private static final Set<Class<?>> NAMES =
      Set.of(AttributeReference.class, GetStructField.class, GetMapValue.class, ElementAt.class);

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

  /** Iceberg's names of types without parameters; strings with a collation have none. */
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
  public final List<Node> nodes = new ArrayList<>();

  /** The functions among the nodes, by number. */
  public final List<ColumnFunction> functions = new ArrayList<>();

  /** The ids of all columns that the nodes name; other columns may be among them. */
  public final Set<Integer> fields = new HashSet<>();

  /** What rows of the scan must satisfy, or null. */
  public final Expression filter;

  private final Map<ExprId, AttributeReference> attributes = new HashMap<>();
  private final Schema schema;
  private boolean beyondFilters;
  private int unknown;

  /** How many more expressions of a function may be looked at. */
  private int left;

  /**
   * @param filter what rows of a scan must satisfy, or null
   * @param isWhole whether each condition becomes a node; otherwise what Iceberg's filters cannot
   *     say
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
      for (Expression conjunct : Lists.conjuncts(filter)) {
        beyondFilters = false;
        Node node = condition(conjunct, 0);
        if (isWhole || (beyondFilters && !isUseless(node))) {
          nodes.add(node);
        }
      }
    }
  }

  /** Whether a condition rules out no row, because it is unknown. */
  @SuppressWarnings("unchecked") // nodes within nodes
  private static boolean isUseless(Node node) {
    return switch ((String) node.get("node")) {
      case "unknown" -> true;
      case "not" -> isUseless((Node) node.get("part"));
      // AND rules rows out if one part does, OR if every part does.
      case "and" -> ((List<Node>) node.get("parts")).stream().allMatch(Conditions::isUseless);
      case "or" -> ((List<Node>) node.get("parts")).stream().anyMatch(Conditions::isUseless);
      default -> false;
    };
  }

  private Node condition(Expression expression, int depth) {
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
    Node node = contained(Contained.of(expression));
    if (node != null) {
      return node;
    }
    if (COMPARISONS.containsKey(type)) {
      node = comparison(expression, COMPARISONS.get(type));
    } else if (expression instanceof In in) {
      node = membership(in.value(), Lists.from(in.list()));
    } else if (expression instanceof InSet in) {
      node = membership(in.child(), Contained.members(in));
    } else if (TESTS.containsKey(type)) {
      Node value = value(expression.children().apply(0));
      node = value == null ? null : Node.of("node", TESTS.get(type), "value", value);
    } else if (expression.dataType().equals(DataTypes.BooleanType)) {
      node = value(expression);
    }
    if (node == null) {
      node = function(expression);
    }
    return node == null ? unknown(expression) : node;
  }

  /** Whether an expression may name a column. */
  static boolean isName(Expression expression) {
    return NAMES.contains(expression.getClass());
  }

  /** The node of OR or NOT; one function if all of it is about one column and a part is unknown. */
  private Node functionUnlessKnown(Expression expression, Class<?> type, int depth) {
    int before = functions.size();
    int unknownBefore = unknown;
    Node node =
        type == Or.class
            ? junction(expression, type, depth)
            : Node.of("node", "not", "part", condition(((Not) expression).child(), depth + 1));
    if (functions.size() == before && unknown == unknownBefore) {
      return node;
    }
    List<ColumnFunction> parts = functions.subList(before, functions.size());
    if (type == Or.class
        && unknown == unknownBefore
        && parts.stream().allMatch(part -> part.node.get("pattern") != null)) {
      // Each of the searches says what words there are.
      return node;
    }
    List<ColumnFunction> kept = new ArrayList<>(parts);
    parts.clear();
    Node function = function(expression);
    if (function == null) {
      functions.addAll(kept);
    }
    return function == null ? node : function;
  }

  /** The node of a condition that names a single column; null for any other condition. */
  private Node function(Expression condition) {
    List<Expression> expressions = new ArrayList<>();
    Set<Node> columns = new HashSet<>();
    left = MAX_NODES;
    if (functions.size() >= MAX_FUNCTIONS
        || !isOfOne(condition, expressions, columns)
        || columns.isEmpty()) {
      return null;
    }
    beyondFilters = true;
    Node column = columns.iterator().next();
    fields.add(column.field());
    ColumnFunction function = new ColumnFunction(condition, expressions, column, functions.size());
    functions.add(function);
    function.node.put("pattern", TextPattern.of(condition));
    return function.node;
  }

  /** Whether an expression names one column at most, and may be evaluated outside of tasks. */
  private boolean isOfOne(Expression expression, List<Expression> expressions, Set<Node> columns) {
    Node value = NAMES.contains(expression.getClass()) ? value(expression) : null;
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

  private Node junction(Expression expression, Class<?> type, int depth) {
    List<Node> parts = new ArrayList<>();
    boolean isAnd = type == And.class;
    (isAnd ? Lists.conjuncts(expression) : Lists.disjuncts(expression))
        .forEach(part -> parts.add(condition(part, depth + 1)));
    return Node.of("node", isAnd ? "and" : "or", "parts", parts);
  }

  private Node unknown(Expression expression) {
    beyondFilters = true;
    unknown++;
    return Node.of("node", "unknown", "name", expression.prettyName());
  }

  private Node comparison(Expression expression, String operator) {
    Node left = value(expression.children().apply(0));
    Node right = value(expression.children().apply(1));
    if (left == null || right == null || !left.type().equals(right.type())) {
      return null;
    }
    return Node.of("node", "comparison", "left", left, "operator", operator, "right", right);
  }

  private Node membership(Expression expression, List<Expression> members) {
    Node value = value(expression);
    List<Node> nodes = new ArrayList<>();
    List<Object> values = new ArrayList<>();
    for (Expression member : members) {
      Node node = value == null || member.getClass() != Literal.class ? null : value(member);
      if (node == null || !value.type().equals(node.type())) {
        return null;
      }
      nodes.add(node);
      values.add(((Literal) member).value());
    }
    return value == null
        ? null
        : Node.of("node", "in", "value", value, "members", PackedList.of(values, () -> nodes));
  }

  /** The node of a test of what a column contains; null if there is none, or none is known. */
  private Node contained(Contained asked) {
    String type = asked == null ? null : nameOf(asked.type());
    List<String> path = new ArrayList<>();
    Types.NestedField field = type == null ? null : field(asked.value(), path);
    if (field == null) {
      return null;
    }
    List<Node> members = new ArrayList<>();
    for (Expression member : asked.members()) {
      Node node =
          member instanceof Literal && member.dataType().equals(asked.type())
              ? value(member)
              : null;
      if (node == null) {
        return null;
      }
      members.add(node);
    }
    beyondFilters = true;
    return Node.of(
        "node", "contains",
        "test", asked.test(),
        "part", asked.part(),
        "value", column(type, field, path),
        "members", members);
  }

  /** The node of a column, the leaf of a struct or the value of a map's key; null for others. */
  public Node columnOrKey(Expression expression) {
    Node value = expression.getClass() == Literal.class ? null : value(expression);
    return value != null && value.is("column") ? value : null;
  }

  /** The node of a column, the value of a map's key or a literal; null for others. */
  private Node value(Expression expression) {
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
  public Node column(Expression expression) {
    String type = nameOf(expression.dataType());
    if (type == null) {
      return null;
    }
    List<String> path = new ArrayList<>();
    Types.NestedField field = field(expression, path);
    return field == null ? null : column(type, field, path);
  }

  private Node element(Expression map, Expression key, String type) {
    if (!(map.dataType() instanceof MapType mapType) || key.getClass() != Literal.class) {
      return null;
    }
    List<String> path = new ArrayList<>();
    Types.NestedField field = field(map, path);
    Node keyNode = value(key);
    if (field == null || keyNode == null || !mapType.keyType().equals(key.dataType())) {
      return null;
    }
    beyondFilters = true;
    Node node = column(type, field, path);
    node.put("key", keyNode);
    return node;
  }

  private Node column(String type, Types.NestedField field, List<String> path) {
    fields.add(field.fieldId());
    return Node.of("node", "column", "type", type, "field", field.fieldId(), "path", path);
  }

  /** The column or the field of a struct that an expression names; null if it names none. */
  private Types.NestedField field(Expression expression, List<String> path) {
    String name = null;
    Types.StructType struct = null;
    if (expression instanceof AttributeReference reference) {
      // The expression has the query's spelling of the name.
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
  public static Node literal(Object value, DataType dataType) {
    String type = nameOf(dataType);
    return type == null
        ? null
        : Node.of("node", "literal", "type", type, "content", content(value));
  }

  /** The content of a literal's node. */
  public static Object content(Object value) {
    if (value instanceof Float || value instanceof Double) {
      return Double.doubleToLongBits(((Number) value).doubleValue());
    }
    if (value instanceof Decimal decimal) {
      return decimal.toJavaBigDecimal().toPlainString();
    }
    byte[] bytes = PackedList.content(value);
    return bytes == null ? value : Base64.getEncoder().encodeToString(bytes);
  }

  /** Iceberg's name of one of Spark's types; null if no index can be of the type. */
  public static String nameOf(DataType type) {
    return type instanceof DecimalType decimal
        ? "decimal(" + decimal.precision() + "," + decimal.scale() + ")"
        : TYPES.get(type);
  }
}
