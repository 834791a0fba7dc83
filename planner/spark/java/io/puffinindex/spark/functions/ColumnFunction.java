package io.puffinindex.spark.functions;

import io.puffinindex.spark.Lists;
import io.puffinindex.spark.Node;
import io.puffinindex.spark.Settings;
import io.puffinindex.spark.scans.View;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.HigherOrderFunction;
import org.apache.spark.sql.catalyst.expressions.InterpretedPredicate;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.expressions.Unevaluable;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampType;
import org.roaringbitmap.RoaringBitmap;

/**
 * A condition on one column that only Spark can evaluate, such as {@code upper(name) LIKE '%X%'}.
 * Spark's own evaluator tells for which of the column's values the condition is true.
 */
public final class ColumnFunction {
  static final String SPARKS_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions.";
  private static final String SPARK = "org.apache.spark.";
  private static final String ICEBERG = "org.apache.iceberg.";
  private static final int MOST_TEXT = 1000;

  /** Compiling a condition takes some 30 ms. */
  private static final int LEAST_COMPILED = 5000;

  private static final int MOST_SIZE = 1000;

  /** Functions whose result is as large as an argument says, with the place of the argument. */
  private static final Map<String, Integer> SIZES =
      Map.of(
          "StringRepeat", 1,
          "StringLPad", 1,
          "StringRPad", 1,
          "StringSpace", 0,
          "ArrayRepeat", 1,
          "ArrayInsert", 1,
          "FormatNumber", 1,
          "FormatString", 0);

  public final Node node;

  private final Expression bound;
  private final DataType type;

  /** What the meaning of the condition depends on besides its text. */
  private final Map<String, String> session = Settings.startingWith("");

  /**
   * @param columns the expressions in the condition that name the column
   */
  public ColumnFunction(Expression condition, List<Expression> columns, Node column, int number) {
    type = columns.get(0).dataType();
    BoundReference reference = new BoundReference(0, type, true);
    bound = condition.transform(Lists.change(part -> columns.contains(part) ? reference : null));
    String text = condition.sql().replace(columns.get(0).sql(), name(column));
    text = text.length() > MOST_TEXT ? text.substring(0, MOST_TEXT) : text;
    node = Node.of("node", "function", "number", number, "name", text, "column", column);
    take(null, null);
  }

  /** The column as text for reports; its expression has the table's name, too. */
  public static String name(Node column) {
    return column.containsKey("key") ? column.path() + "[...]" : column.path();
  }

  /**
   * Whether Spark gives the same result for the same value each time, here as in a task, and the
   * size of the result is bounded by that of the value. The code of users need not: it may read
   * what changes.
   */
  public static boolean isRepeatable(Expression expression) {
    if (!expression.deterministic()
        || expression instanceof Unevaluable
        || expression instanceof SubqueryExpression
        || expression instanceof UserDefinedExpression
        // The variables of lambda functions are shared with the plan, which another thread may run.
        || expression instanceof HigherOrderFunction
        || !isBounded(expression)
        // The text of a time without a date is one of today.
        || (expression instanceof Cast cast
            && cast.dataType() instanceof TimestampType
            && cast.child().dataType() instanceof StringType)
        || !expression.getClass().getName().startsWith(SPARKS_EXPRESSIONS)) {
      return false;
    }
    if (expression instanceof StaticInvoke invoke) {
      // Each call draws a vector, and Spark calls it deterministic.
      return isOfSpark(invoke.staticObject()) && !invoke.functionName().equals("aesEncrypt");
    }
    return !(expression instanceof Invoke invoke
        && invoke.targetObject().dataType() instanceof ObjectType target
        && !isOfSpark(target.cls()));
  }

  /** Whether the size of a result is no value of a column: one that no row has may be huge. */
  private static boolean isBounded(Expression expression) {
    String name = expression.getClass().getSimpleName();
    // Binaries are padded by a static method.
    boolean isPad =
        expression instanceof StaticInvoke invoke && invoke.functionName().endsWith("pad");
    Integer place = isPad ? (Integer) 1 : SIZES.get(name);
    if (place == null) {
      return !name.equals("Sequence");
    }
    return expression.children().apply(place) instanceof Literal size
        && !(size.value() instanceof Number number && number.doubleValue() > MOST_SIZE);
  }

  private static boolean isOfSpark(Class<?> type) {
    return type.getName().startsWith(SPARK) || type.getName().startsWith(ICEBERG);
  }

  /**
   * What results depend on: the same key stands for the same result. Not the canonical form, which
   * changes the order of sums, and with it the last bits of doubles.
   */
  public Object key(String fingerprint) {
    return List.of(fingerprint, bound, session);
  }

  /** Whether this thread has the settings that the query was planned with. */
  public boolean isOfThisSession() {
    return session.equals(Settings.startingWith(""));
  }

  public void take(String fingerprint, Node matches) {
    node.put("values", fingerprint);
    node.put("matches", matches);
  }

  /**
   * Finds the values for which the condition is true, as the content of a request. A value for
   * which it fails counts as well: the query fails if a row has this value.
   */
  public Evaluation<Node> matches(ColumnValues values) {
    // An expression of the thread's own, as expressions may have buffers.
    Expression own = bound.clone();
    return new Evaluation<>(
        next ->
            values.areBounds()
                ? between(own, values.first(), values.last())
                : among(own, values, next));
  }

  private Node among(Expression own, ColumnValues values, Runnable next) {
    BasePredicate predicate =
        values.size() < LEAST_COMPILED
            ? new InterpretedPredicate(own)
            : Predicate$.MODULE$.create(own);
    predicate.initialize(0);
    GenericInternalRow row = new GenericInternalRow(1);
    RoaringBitmap positions = new RoaringBitmap();
    boolean exact = true;
    long started = System.nanoTime();
    for (int place = 0; place < values.size(); place++) {
      next.run();
      Object value = values.value(place, type);
      row.update(0, value);
      Boolean matches = Evaluation.isLong(value) ? null : evaluate(predicate, row);
      Object opposite = opposite(value);
      if (opposite != null) {
        // The index has one key for 0.0 and -0.0.
        row.update(0, opposite);
        Boolean other = evaluate(predicate, row);
        matches = Objects.equals(other, matches) ? matches : null;
      }
      exact &= matches != null;
      if (matches == null || matches) {
        positions.add(place);
      }
    }
    String text = Base64.getEncoder().encodeToString(View.serialized(positions));
    return found(predicate, exact, started).with("positions", text);
  }

  /** The interval of keys for which a monotone condition is true; null for another condition. */
  private Node between(Expression own, long least, long greatest) {
    long started = System.nanoTime();
    long[] keys = MonotoneFunction.keys(own, type, least, greatest);
    return keys == null
        ? null
        : found(new InterpretedPredicate(own), true, started).with("between", keys);
  }

  private static Node found(BasePredicate predicate, boolean exact, long started) {
    Boolean matchesNull = evaluate(predicate, new GenericInternalRow(1));
    return Node.of(
        "null",
        matchesNull == null || matchesNull,
        "exact",
        exact && matchesNull != null,
        "microseconds",
        (System.nanoTime() - started) / 1000);
  }

  /** Whether the condition is true; null if it fails. */
  private static Boolean evaluate(BasePredicate predicate, GenericInternalRow row) {
    try {
      return predicate.eval(row);
    } catch (Exception | StackOverflowError e) {
      return null;
    }
  }

  /** The zero of the other sign; null for all other values. */
  public static Object opposite(Object value) {
    if (value instanceof Double number && number == 0) {
      return -number;
    }
    return value instanceof Float number && number == 0 ? (Object) (-number) : null;
  }
}
