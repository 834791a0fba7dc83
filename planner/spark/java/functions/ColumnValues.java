package io.puffinindex.spark;

import java.io.DataInputStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.unsafe.types.UTF8String;

/** The values that a column has, as the planner lists them: {@code planner/spark/requests/wire.py} describes lists. */
public class ColumnValues {
  private static final byte BOUNDS = 'I';
  private static final byte RANGE = 'R';
  private static final byte NUMBERS = 'N';
  private static final byte BYTES = 'B';

  /** A text that lists of other values do not have. */
  public final String fingerprint;

  public final int size;
  /** Whether only the least and the greatest key are known. */
  public final boolean areBounds;
  /** The first value of a range, or the least key. */
  public final long first;
  /** The greatest key, if only bounds are known. */
  public final long last;
  /** Values as numbers; null for a range and for bytes. */
  private final long[] numbers;
  /** Values as bytes; null for numbers. */
  private final byte[][] bytes;

  private ColumnValues(String fingerprint, long least, long greatest) {
    this.fingerprint = fingerprint;
    size = 0;
    areBounds = true;
    first = least;
    last = greatest;
    numbers = null;
    bytes = null;
  }

  private ColumnValues(String fingerprint, int size, long first, long[] numbers, byte[][] bytes) {
    this.fingerprint = fingerprint;
    this.size = size;
    areBounds = false;
    this.first = first;
    last = 0;
    this.numbers = numbers;
    this.bytes = bytes;
  }

  public static ColumnValues read(DataInputStream in) throws Exception {
    byte[] text = new byte[in.readUnsignedShort()];
    in.readFully(text);
    return readList(new String(text, "UTF-8"), in);
  }

  /** Read a list without its fingerprint. */
  public static ColumnValues readList(String fingerprint, DataInputStream in) throws Exception {
    byte form = in.readByte();
    if (form == BOUNDS) {
      return new ColumnValues(fingerprint, in.readLong(), in.readLong());
    }
    int size = in.readInt();
    if (form == RANGE) {
      return new ColumnValues(fingerprint, size, in.readLong(), null, null);
    }
    if (form == NUMBERS) {
      return new ColumnValues(fingerprint, size, 0, readLongs(in, size), null);
    }
    if (form != BYTES) {
      throw new IllegalStateException("a list of values of unknown form " + form);
    }
    byte[][] bytes = new byte[size][];
    for (int i = 0; i < size; i++) {
      bytes[i] = new byte[in.readInt()];
    }
    for (int i = 0; i < size; i++) {
      in.readFully(bytes[i]);
    }
    return new ColumnValues(fingerprint, size, 0, null, bytes);
  }

  public static long[] readLongs(DataInputStream in, int size) throws Exception {
    long[] numbers = new long[size];
    for (int i = 0; i < size; i++) {
      numbers[i] = in.readLong();
    }
    return numbers;
  }

  /** A value as rows of Spark's have it. */
  public Object value(int place, DataType type) {
    if (bytes != null) {
      return ofBytes(bytes[place], type);
    }
    return ofNumber(numbers == null ? first + place : numbers[place], type);
  }

  /** The value of a key of the int64 domain. */
  public static Object ofKey(long key, DataType type) {
    boolean isFloating = type instanceof DoubleType || type instanceof FloatType;
    // Keys of negative numbers have all bits but the sign flipped, so that they are in the order of the numbers.
    return ofNumber(isFloating ? key ^ ((key >> 63) & Long.MAX_VALUE) : key, type);
  }

  private static Object ofNumber(long number, DataType type) {
    if (type instanceof BooleanType) {
      return Boolean.valueOf(number != 0);
    }
    if (type instanceof IntegerType || type instanceof DateType) {
      return Integer.valueOf((int) number);
    }
    if (type instanceof DoubleType) {
      return Double.valueOf(Double.longBitsToDouble(number));
    }
    if (type instanceof FloatType) {
      return Float.valueOf((float) Double.longBitsToDouble(number));
    }
    if (type instanceof DecimalType) {
      return new Decimal().set(number, ((DecimalType) type).precision(), ((DecimalType) type).scale());
    }
    return Long.valueOf(number);
  }

  private static Object ofBytes(byte[] value, DataType type) {
    if (type instanceof StringType) {
      return UTF8String.fromBytes(value);
    }
    if (type instanceof DecimalType) {
      BigDecimal number = new BigDecimal(new BigInteger(value), ((DecimalType) type).scale());
      return Decimal.apply(number, ((DecimalType) type).precision(), ((DecimalType) type).scale());
    }
    return value;
  }
}
