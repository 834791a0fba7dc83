package io.puffinindex.spark;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;

/**
 * The buffer of an aggregate of an expression, such as {@code sum(c + 1)}: Spark's own evaluator gives the value of each
 * group of the index, and the group's rows say how often the value counts.
 *
 * <p>A sum counts only if no order of adding up overflows, and if doubles lose no bit in any order.
 */
public class ComputedValues {
  /** Doubles add up this many multiples of a power of two exactly. */
  private static final double EXACT_DOUBLES = 1L << 53;

  private static final int BITS_OF_FRACTIONS = 52;
  private static final int MOST_EXPONENT = 900;
  /** What adding up magnitudes may have rounded off, and far more. */
  private static final double SLACK = 1 + 1e-6;

  private final String what;
  private final DataType type;
  private final List values;

  private long gains;
  private long losses;
  private BigDecimal wideGains;
  private BigDecimal wideLosses;
  private double magnitude;
  /** All doubles so far are multiples of two to the power of this. */
  private int exponent;

  /**
   * @param what sum, average or end
   * @param type the type of the buffer
   * @param values the expression, of a row of columns to group by: one for each row that comes of a row of the scan
   */
  public ComputedValues(String what, DataType type, List values) {
    this.what = what;
    this.type = type;
    this.values = values;
  }

  public String toString() {
    return what + " " + values;
  }

  /** Whether rows that are still to be read could make doubles lose bits. */
  public boolean needsEveryRow() {
    return type instanceof DoubleType && !what.equals("end");
  }

  /** Begin a new sum of all groups. */
  public void begin() {
    gains = 0;
    losses = 0;
    wideGains = BigDecimal.ZERO;
    wideLosses = BigDecimal.ZERO;
    magnitude = 0;
    exponent = MOST_EXPONENT;
  }

  /**
   * Add the buffers of a group to a row.
   *
   * @param count the rows of the group; 0 for none, whose value nobody evaluates
   * @throws RuntimeException if the expression fails for the value, or the sum is not exact
   */
  public void add(long count, int projection, InternalRow columns, List row) {
    Object value = count == 0 ? null : ((Expression) values.get(projection)).eval(columns);
    if (what.equals("end")) {
      row.add(withoutNegativeZero(value));
      return;
    }
    boolean isAverage = what.equals("average");
    Object sum = value == null ? null : sum(value, count);
    boolean hasZero = type instanceof DecimalType || isAverage;
    row.add(sum == null && hasZero ? zero() : sum);
    if (isAverage) {
      row.add(Long.valueOf(value == null ? 0 : count));
    } else if (type instanceof DecimalType) {
      row.add(Boolean.valueOf(value == null));
    }
  }

  /** Check the sum of all groups, because Spark may join any of them. */
  public void end() {
    if (magnitude * SLACK > EXACT_DOUBLES * Math.scalb(1.0, exponent)) {
      throw new ArithmeticException("doubles that lose bits");
    }
    if (type instanceof DecimalType) {
      BigDecimal most = new BigDecimal(BigInteger.TEN.pow(((DecimalType) type).precision()), ((DecimalType) type).scale());
      if (wideGains.compareTo(most) >= 0 || wideLosses.negate().compareTo(most) >= 0) {
        throw new ArithmeticException("decimals that overflow");
      }
    }
  }

  private Object zero() {
    if (type instanceof DecimalType) {
      return new Decimal().set(0L, ((DecimalType) type).precision(), ((DecimalType) type).scale());
    }
    return type instanceof DoubleType ? (Object) Double.valueOf(0) : Long.valueOf(0);
  }

  private Object sum(Object value, long count) {
    if (type instanceof DecimalType) {
      BigDecimal sum = ((Decimal) value).toJavaBigDecimal().multiply(BigDecimal.valueOf(count));
      wideGains = sum.signum() > 0 ? wideGains.add(sum) : wideGains;
      wideLosses = sum.signum() < 0 ? wideLosses.add(sum) : wideLosses;
      return Decimal.apply(sum, ((DecimalType) type).precision(), ((DecimalType) type).scale());
    }
    if (type instanceof DoubleType) {
      double number = ((Number) value).doubleValue();
      see(number);
      magnitude += Math.abs(number) * count;
      // A sum that starts at 0.0 is never -0.0.
      return Double.valueOf(number * count + 0.0);
    }
    long sum = Math.multiplyExact(((Number) value).longValue(), count);
    gains = sum > 0 ? Math.addExact(gains, sum) : gains;
    losses = sum < 0 ? Math.addExact(losses, sum) : losses;
    return Long.valueOf(sum);
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

  /** A value; which of two zeros Spark would take depends on the order of the rows. */
  private static Object withoutNegativeZero(Object value) {
    boolean isFloating = value instanceof Double || value instanceof Float;
    if (isFloating && ((Number) value).doubleValue() == 0 && 1 / ((Number) value).doubleValue() < 0) {
      throw new ArithmeticException("a zero whose sign depends on the order of rows");
    }
    return value;
  }
}
