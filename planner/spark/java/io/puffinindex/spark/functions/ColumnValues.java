package io.puffinindex.spark.functions;

import io.puffinindex.spark.scans.View;
import java.io.DataInputStream;
import java.io.IOException;
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

/**
 * The values of a column, as {@code planner/spark/requests/wire.py} lists them.
 *
 * @param fingerprint a text that lists of other values do not have
 * @param size -1 if only the least and the greatest key are known
 * @param first the first value of a range, or the least key
 * @param last the greatest key, if only bounds are known
 * @param numbers null for a range and for bytes
 * @param bytes null for numbers
 */
@SuppressWarnings("ArrayRecordComponent") // nobody compares it
public record ColumnValues(
    String fingerprint, int size, long first, long last, long[] numbers, byte[][] bytes) {
  /** Whether only the least and the greatest key are known. */
  public boolean areBounds() {
    return size < 0;
  }

  public static ColumnValues read(DataInputStream in) throws IOException {
    return readList(in.readUTF(), in);
  }

  /** Read a list without its fingerprint. */
  public static ColumnValues readList(String fingerprint, DataInputStream in) throws IOException {
    char form = (char) in.readByte();
    if (form == 'I') {
      return new ColumnValues(fingerprint, -1, in.readLong(), in.readLong(), null, null);
    }
    int size = in.readInt();
    return switch (form) {
      case 'R' -> new ColumnValues(fingerprint, size, in.readLong(), 0, null, null);
      case 'N' -> new ColumnValues(fingerprint, size, 0, 0, View.longs(in, size), null);
      case 'B' -> new ColumnValues(fingerprint, size, 0, 0, null, readBytes(in, size));
      default -> throw new IllegalStateException("a list of values of unknown form " + form);
    };
  }

  private static byte[][] readBytes(DataInputStream in, int size) throws IOException {
    byte[][] bytes = new byte[size][];
    for (int i = 0; i < size; i++) {
      bytes[i] = new byte[in.readInt()];
    }
    for (byte[] value : bytes) {
      in.readFully(value);
    }
    return bytes;
  }

  public Object value(int place, DataType type) {
    if (bytes != null) {
      return ofBytes(bytes[place], type);
    }
    return ofNumber(numbers == null ? first + place : numbers[place], type);
  }

  /** The value of a key of the int64 domain. */
  public static Object ofKey(long key, DataType type) {
    boolean isFloating = type instanceof DoubleType || type instanceof FloatType;
    // Keys of negative numbers have all bits but the sign flipped, to be in order.
    return ofNumber(isFloating ? key ^ ((key >> 63) & Long.MAX_VALUE) : key, type);
  }

  private static Object ofNumber(long number, DataType type) {
    if (type instanceof BooleanType) {
      return number != 0;
    }
    if (type instanceof IntegerType || type instanceof DateType) {
      return (int) number;
    }
    if (type instanceof DoubleType) {
      return Double.longBitsToDouble(number);
    }
    if (type instanceof FloatType) {
      return (float) Double.longBitsToDouble(number);
    }
    if (type instanceof DecimalType decimal) {
      return new Decimal().set(number, decimal.precision(), decimal.scale());
    }
    return number;
  }

  private static Object ofBytes(byte[] value, DataType type) {
    if (type instanceof StringType) {
      return UTF8String.fromBytes(value);
    }
    if (type instanceof DecimalType decimal) {
      BigDecimal number = new BigDecimal(new BigInteger(value), decimal.scale());
      return Decimal.apply(number, decimal.precision(), decimal.scale());
    }
    return value;
  }
}
