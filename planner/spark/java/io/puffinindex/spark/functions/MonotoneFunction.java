package io.puffinindex.spark.functions;

import io.puffinindex.spark.Lists;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.DateDiff;
import org.apache.spark.sql.catalyst.expressions.Divide;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.IntegralDivide;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Multiply;
import org.apache.spark.sql.catalyst.expressions.Subtract;
import org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression;
import org.apache.spark.sql.catalyst.expressions.TruncTimestamp;
import org.apache.spark.sql.catalyst.expressions.UnaryMinus;
import org.apache.spark.sql.catalyst.util.TypeUtils;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/**
 * A comparison of a function that never falls, or never rises, with a literal: {@code price + 1 =
 * 5}, {@code year(t) >= 2024}. The values for which it is true lie in one interval, whose ends are
 * found by halving.
 *
 * @param type the type of the column
 */
record MonotoneFunction(DataType type, long least, long greatest) {
  /** Functions that rise with their first argument; their other arguments must be literals. */
  private static final Set<String> RISING =
      Lists.words(
          "UnaryPositive Floor Ceil Round BRound Year TruncDate DateAdd DateSub AddMonths LastDay",
          "UnixDate UnixMicros UnixMillis UnixSeconds");

  /**
   * The least and the greatest key between two for which a condition on the only column of a row is
   * true; empty if there is none; null if the condition is of another kind, or fails for some keys.
   */
  @SuppressWarnings("ReturnsNullCollection") // an empty array is an interval, null is none
  static long[] keys(Expression condition, DataType type, long least, long greatest) {
    Class<?> kind = condition.getClass();
    boolean isOrder =
        kind == LessThan.class
            || kind == LessThanOrEqual.class
            || kind == GreaterThan.class
            || kind == GreaterThanOrEqual.class;
    // NaN is the greatest number, but the floor of NaN is 0.
    boolean hasNan =
        ColumnValues.ofKey(greatest, type) instanceof Number number
            && Double.isNaN(number.doubleValue());
    if ((!isOrder && kind != EqualTo.class) || hasNan) {
      return null;
    }
    Expression left = condition.children().apply(0);
    Expression right = condition.children().apply(1);
    Expression function = left instanceof Literal ? right : left;
    Expression other = left instanceof Literal ? left : right;
    MonotoneFunction search = new MonotoneFunction(type, least, greatest);
    if (!(other instanceof Literal literal)
        || literal.value() == null
        || search.direction(function) == 0) {
      return null;
    }
    if (isOrder) {
      return search.side(condition);
    }
    long[] above = search.side(new GreaterThanOrEqual(function, literal));
    long[] below = search.side(new LessThanOrEqual(function, literal));
    if (above == null || below == null || above.length == 0 || below.length == 0) {
      return above == null || below == null ? null : new long[0];
    }
    long first = Math.max(above[0], below[0]);
    long last = Math.min(above[1], below[1]);
    return first > last ? new long[0] : new long[] {first, last};
  }

  /** The keys for which a condition is true that holds for all keys on one side of some key. */
  private long[] side(Expression condition) {
    Boolean atLeast = (Boolean) at(condition, least);
    Boolean atGreatest = (Boolean) at(condition, greatest);
    if (atLeast == null || atGreatest == null) {
      return null;
    }
    if (atLeast.equals(atGreatest)) {
      return atLeast ? new long[] {least, greatest} : new long[0];
    }
    long same = least;
    long other = greatest;
    // The distance of two keys may exceed 63 bits.
    while (other - same != 1) {
      long middle = same + ((other - same) >>> 1);
      Boolean found = (Boolean) at(condition, middle);
      if (found == null) {
        return null;
      }
      if (found.equals(atLeast)) {
        same = middle;
      } else {
        other = middle;
      }
    }
    return atLeast ? new long[] {least, same} : new long[] {other, greatest};
  }

  /** The value of an expression for a key; null if it is NULL or fails. */
  private Object at(Expression expression, long key) {
    Object[] values = {ColumnValues.ofKey(key, type)};
    try {
      return expression.eval(new GenericInternalRow(values));
    } catch (Exception e) {
      return null;
    }
  }

  /** 1 if a function never falls with the key, -1 if it never rises, 0 if that is not certain. */
  private int direction(Expression function) {
    int direction = claimed(function);
    if (direction == 0) {
      return 0;
    }
    // An overflow that gives NULL, an error or a number of the other sign shows at the ends.
    Object first = at(function, least);
    Object last = at(function, greatest);
    if (first == null || last == null) {
      return 0;
    }
    int compared = TypeUtils.getInterpretedOrdering(function.dataType()).compare(first, last);
    return direction > 0 ? (compared <= 0 ? 1 : 0) : (compared >= 0 ? -1 : 0);
  }

  private int claimed(Expression function) {
    Class<?> kind = function.getClass();
    if (kind == BoundReference.class) {
      return 1;
    }
    if (function.children().isEmpty()) {
      return 0;
    }
    Expression first = function.children().apply(0);
    if (kind == UnaryMinus.class) {
      return -direction(first);
    }
    if (kind == Cast.class) {
      return keepsOrder(first.dataType(), function.dataType(), function) ? direction(first) : 0;
    }
    if (kind == Add.class || kind == Subtract.class || kind == DateDiff.class || isProduct(kind)) {
      return ofTwo(function, first, function.children().apply(1));
    }
    if (kind == TruncTimestamp.class && isInFixedZone(function)) {
      // Elsewhere the clock is put back now and then. The unit comes first.
      return first instanceof Literal ? direction(function.children().apply(1)) : 0;
    }
    boolean rises =
        RISING.contains(kind.getSimpleName())
            && kind.getName().startsWith(ColumnFunction.SPARKS_EXPRESSIONS);
    for (int i = 1; rises && i < function.children().size(); i++) {
      rises = function.children().apply(i) instanceof Literal;
    }
    return rises ? direction(first) : 0;
  }

  private static boolean isProduct(Class<?> kind) {
    return kind == Multiply.class || kind == Divide.class || kind == IntegralDivide.class;
  }

  private int ofTwo(Expression function, Expression left, Expression right) {
    Class<?> kind = function.getClass();
    if (isInfinite(left) || isInfinite(right)) {
      // 0 times infinity is NaN, between two numbers of other signs.
      return 0;
    }
    if (isProduct(kind)) {
      boolean isCommutative = kind == Multiply.class;
      Expression factor = isCommutative && left instanceof Literal ? left : right;
      // A product of integers, and div of decimals, may overflow several times between the ends.
      boolean wraps =
          (isCommutative || left.dataType() instanceof DecimalType)
              && function.dataType() instanceof IntegralType;
      return wraps || !(factor instanceof Literal literal)
          ? 0
          : sign(literal) * direction(factor == left ? right : left);
    }
    if (right instanceof Literal) {
      return direction(left);
    }
    if (!(left instanceof Literal)) {
      return 0;
    }
    return kind == Add.class ? direction(right) : -direction(right);
  }

  private static boolean isInfinite(Expression expression) {
    return expression instanceof Literal literal
        && literal.value() instanceof Number number
        && Double.isInfinite(number.doubleValue());
  }

  private static int sign(Literal literal) {
    if (literal.value() instanceof Decimal decimal) {
      return decimal.toJavaBigDecimal().signum();
    }
    // Of NaN, this is 0.
    return literal.value() instanceof Number number ? (int) Math.signum(number.doubleValue()) : 0;
  }

  private static boolean keepsOrder(DataType from, DataType to, Expression cast) {
    if (from instanceof NumericType && to instanceof NumericType) {
      // A cast to a narrower integer may overflow several times between the ends.
      boolean areIntegers = from instanceof IntegralType && to instanceof IntegralType;
      boolean isWider = areIntegers && to.defaultSize() >= from.defaultSize();
      return isWider
          || to instanceof DecimalType
          || to instanceof DoubleType
          || to instanceof FloatType;
    }
    if (from instanceof DateType) {
      return to instanceof TimestampNTZType || (to instanceof TimestampType && isInFixedZone(cast));
    }
    if (from instanceof TimestampNTZType) {
      return to instanceof DateType;
    }
    return from instanceof TimestampType && to instanceof DateType && isInFixedZone(cast);
  }

  private static boolean isInFixedZone(Expression expression) {
    TimeZoneAwareExpression aware = (TimeZoneAwareExpression) expression;
    // Spark reads zones that Java does not, such as +1:00.
    return aware.timeZoneId().isDefined() && aware.zoneId().getRules().isFixedOffset();
  }
}
