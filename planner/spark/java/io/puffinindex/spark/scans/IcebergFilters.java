package io.puffinindex.spark.scans;

import io.puffinindex.spark.Node;
import io.puffinindex.spark.Trouble;
import io.puffinindex.spark.conditions.Conditions;
import io.puffinindex.spark.conditions.PackedList;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.apache.iceberg.Schema;
import org.apache.iceberg.expressions.And;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.Expression.Operation;
import org.apache.iceberg.expressions.NamedReference;
import org.apache.iceberg.expressions.Not;
import org.apache.iceberg.expressions.Or;
import org.apache.iceberg.expressions.UnboundPredicate;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.util.ByteBuffers;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Iceberg's filters of a scan as nodes like those of {@link Conditions}. A filter without such
 * nodes is unknown.
 *
 * @param fields takes the ids of the columns that filters name
 */
public record IcebergFilters(Schema schema, Set<Integer> fields) {
  private static final Map<Operation, String> TESTS =
      Map.of(
          Operation.IS_NULL, "is-null",
          Operation.NOT_NULL, "is-not-null",
          Operation.IS_NAN, "is-nan");

  private static final Map<Operation, String> COMPARISONS =
      Map.of(
          Operation.EQ, "<=>",
          Operation.LT, "<",
          Operation.LT_EQ, "<=",
          Operation.GT, ">",
          Operation.GT_EQ, ">=",
          Operation.STARTS_WITH, "starts with");

  public Node node(Expression filter) {
    try {
      return node(filter, 0);
    } catch (RuntimeException e) {
      Trouble.LOG.debug("filter not handed to the index: {}", filter, e);
      return Node.of("node", "unknown", "name", filter.op().toString());
    }
  }

  private Node node(Expression filter, int depth) {
    if (depth > Conditions.MAX_DEPTH) {
      throw new IllegalArgumentException("too deep");
    }
    return switch (filter.op()) {
      case TRUE, FALSE ->
          Node.of("node", "literal", "type", "boolean", "content", filter.op() == Operation.TRUE);
      case AND, OR -> junction(filter, depth);
      case NOT -> Node.of("node", "not", "part", node(((Not) filter).child(), depth + 1));
      // These match NULL as well: Spark hands NOT (a <=> 5) down as NOT_EQ.
      case NOT_EQ, NOT_IN, NOT_STARTS_WITH, NOT_NAN ->
          Node.of("node", "not", "part", node(filter.negate(), depth + 1));
      default -> test((UnboundPredicate<?>) filter);
    };
  }

  private Node junction(Expression filter, int depth) {
    List<Node> parts = new ArrayList<>();
    Deque<Expression> pending = new ArrayDeque<>(List.of(filter));
    while (!pending.isEmpty()) {
      Expression next = pending.pop();
      if (next.op() != filter.op()) {
        parts.add(node(next, depth + 1));
      } else {
        pending.push(next instanceof And and ? and.right() : ((Or) next).right());
        pending.push(next instanceof And and ? and.left() : ((Or) next).left());
      }
    }
    return Node.of("node", filter.op() == Operation.AND ? "and" : "or", "parts", parts);
  }

  /** The node of a test of one column; fails for a transform, and for a type without indexes. */
  private Node test(UnboundPredicate<?> predicate) {
    String name = ((NamedReference<?>) predicate.term()).name();
    var field = schema.findField(name);
    DataType type = SparkSchemaUtil.convert(field.type());
    Node column =
        Node.of(
            "node", "column",
            "type", Objects.requireNonNull(Conditions.nameOf(type)),
            "field", field.fieldId(),
            "path", List.of(name));
    fields.add(field.fieldId());
    Operation operation = predicate.op();
    if (TESTS.containsKey(operation)) {
      return Node.of("node", TESTS.get(operation), "value", column);
    }
    List<Object> values = new ArrayList<>();
    // Spark has the texts of UUIDs.
    boolean isText = column.type().equals("string");
    predicate
        .literals()
        .forEach(one -> values.add(internal((isText ? one : one.to(field.type())).value())));
    List<Node> literals = values.stream().map(value -> Conditions.literal(value, type)).toList();
    Node test =
        operation == Operation.IN
            ? Node.of(
                "node", "in", "value", column, "members", PackedList.of(values, () -> literals))
            : Node.of(
                "node",
                "comparison",
                "left",
                column,
                "operator",
                COMPARISONS.get(operation),
                "right",
                literals.get(0));
    if (operation != Operation.IN && operation != Operation.STARTS_WITH) {
      return test;
    }
    // NULL fails these tests, so that it satisfies their opposites.
    Node isNotNull = Node.of("node", "is-not-null", "value", column);
    return Node.of("node", "and", "parts", List.of(isNotNull, test));
  }

  /** A value as Spark's rows have it; fails for a text that has lost bytes that are not UTF-8. */
  private static Object internal(Object value) {
    if (value instanceof CharSequence text) {
      UTF8String bytes = UTF8String.fromString(text.toString());
      if (text.toString().indexOf('\uFFFD') >= 0 || !bytes.toString().contentEquals(text)) {
        throw new IllegalArgumentException("a text that is not the query's");
      }
      return bytes;
    }
    if (value instanceof BigDecimal number) {
      return Decimal.apply(number);
    }
    return value instanceof ByteBuffer buffer ? ByteBuffers.toByteArray(buffer) : value;
  }
}
