package io.puffinindex.spark.aggregates;

import io.puffinindex.spark.functions.ColumnValues;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;

/**
 * The buffer of an aggregate of an expression, such as {@code sum(c + 1)}: Spark's own evaluator
 * gives the value of each group of the index, and the group's rows say how often the value counts.
 *
 * <p>A sum counts only if no order of adding up overflows, and if doubles lose no bit in any order.
 */
final class ComputedValues {
  /** Doubles add up this many multiples of a power of two exactly. */
  static final double EXACT_DOUBLES = 1L << 53;

  private static final int BITS_OF_FRACTIONS = 52;
  private static final int MOST_EXPONENT = 900;

  /** What adding up magnitudes may have rounded off, and far more. */
  private static final double SLACK = 1 + 1e-6;

  private final boolean isSum;
  private final List<DataType> types;
  private final DataType type;
  private final List<Expression> values;

  private BigDecimal gains;
  private BigDecimal losses;
  private double magnitude;

  /** All doubles so far are multiples of two to the power of this. */
  private int exponent;

  ComputedValues(boolean isSum, List<DataType> types, List<Expression> values) {
    this.isSum = isSum;
    this.types = types;
    this.type = types.get(0);
    this.values = values;
  }

  @Override
  public String toString() {
    return isSum + " " + values;
  }

  /** Whether rows that are still to be read could make doubles lose bits. */
  boolean needsEveryRow() {
    return type instanceof DoubleType && isSum;
  }

  void begin() {
    gains = BigDecimal.ZERO;
    losses = BigDecimal.ZERO;
    magnitude = 0;
    exponent = MOST_EXPONENT;
  }

  /** Add the buffers of a group to a row; fail if the expression fails, or the sum is not exact. */
  void add(long count, int projection, InternalRow columns, List<Object> row) {
    Object value = count == 0 ? null : values.get(projection).eval(columns);
    if (isSum) {
      addSum(value == null ? null : sum(value, count), value == null ? 0 : count, types, row);
    } else {
      // Which of two zeros Spark would take depends on the order of the rows.
      if (value instanceof Number number && 1 / number.doubleValue() == Double.NEGATIVE_INFINITY) {
        throw new ArithmeticException("a zero whose sign depends on the order of rows");
      }
      row.add(value);
    }
  }

  /** Add the buffer of a sum or an average to a row; the sum is null if there are no values. */
  static void addSum(Object sum, long count, List<DataType> types, List<Object> row) {
    // A sum alone is NULL without values; others are beside something that says so.
    boolean isAlone = types.size() == 1;
    row.add(sum == null && !isAlone ? ColumnValues.ofKey(0, types.get(0)) : sum);
    if (!isAlone) {
      row.add(types.get(1) instanceof BooleanType ? (Object) (count == 0) : (Object) count);
    }
  }

  /** Check the sum of all groups, because Spark may join any of them. */
  void end() {
    if (magnitude * SLACK > EXACT_DOUBLES * Math.scalb(1.0, exponent)) {
      throw new ArithmeticException("doubles that lose bits");
    }
    BigDecimal most =
        type instanceof DecimalType decimal
            ? new BigDecimal(
                BigInteger.TEN.pow(decimal.precision()).subtract(BigInteger.ONE), decimal.scale())
            : BigDecimal.valueOf(Long.MAX_VALUE);
    if (gains.compareTo(most) > 0 || losses.negate().compareTo(most) > 0) {
      throw new ArithmeticException("a sum that overflows");
    }
  }

  private Object sum(Object value, long count) {
    if (type instanceof DoubleType) {
      double number = ((Number) value).doubleValue();
      see(number);
      magnitude += Math.abs(number) * count;
      // A sum that starts at 0.0 is never -0.0.
      return number * count + 0.0;
    }
    BigDecimal one =
        type instanceof DecimalType
            ? ((Decimal) value).toJavaBigDecimal()
            : BigDecimal.valueOf(((Number) value).longValue());
    BigDecimal sum = one.multiply(BigDecimal.valueOf(count));
    gains = gains.add(sum.max(BigDecimal.ZERO));
    losses = losses.add(sum.min(BigDecimal.ZERO));
    return type instanceof DecimalType decimal
        ? Decimal.apply(sum, decimal.precision(), decimal.scale())
        : (Object) sum.longValueExact();
  }

  /** Note which power of two a double is a multiple of. */
  private void see(double number) {
    if (number == 0) {
      return;
    }
    int own = Math.getExponent(number);
    if (own > MOST_EXPONENT || own < -MOST_EXPONENT) {
      throw new ArithmeticException("a double that is not finite, or far from 1");
    }
    long fraction = Double.doubleToLongBits(number) & ((1L << BITS_OF_FRACTIONS) - 1);
    int zeros = fraction == 0 ? BITS_OF_FRACTIONS : Long.numberOfTrailingZeros(fraction);
    exponent = Math.min(exponent, own - BITS_OF_FRACTIONS + zeros);
  }
}
