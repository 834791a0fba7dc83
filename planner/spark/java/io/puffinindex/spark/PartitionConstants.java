package io.puffinindex.spark;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.commons.codec.binary.Hex;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.util.ByteBuffers;

/**
 * The values that identity partitions give a data file, as {@code puffin_index/data/constants.py}
 * writes them.
 */
public final class PartitionConstants {
  private PartitionConstants() {}

  /**
   * The constants of a task's data file; empty without identity partitions, null if a value has no
   * text.
   */
  public static String of(FileScanTask task) {
    List<PartitionField> fields = task.spec().fields();
    Map<Integer, String> texts = new TreeMap<>();
    for (int i = 0; i < fields.size(); i++) {
      PartitionField field = fields.get(i);
      if (field.transform().isIdentity()) {
        String text = text(task.partition().get(i, Object.class));
        if (text == null) {
          return null;
        }
        texts.put(field.sourceId(), field.sourceId() + "=" + text);
      }
    }
    return String.join(";", texts.values());
  }

  private static String text(Object value) {
    if (value == null) {
      return "null";
    }
    if (value instanceof Boolean isTrue) {
      return isTrue ? "1" : "0";
    }
    if (value instanceof Integer || value instanceof Long) {
      return value.toString();
    }
    if (value instanceof Float || value instanceof Double) {
      return Long.toString(key(((Number) value).doubleValue()));
    }
    if (value instanceof BigDecimal number) {
      return number.unscaledValue().toString();
    }
    if (value instanceof CharSequence) {
      return "x" + Hex.encodeHexString(value.toString().getBytes(StandardCharsets.UTF_8));
    }
    if (value instanceof ByteBuffer bytes) {
      return "x" + Hex.encodeHexString(ByteBuffers.toByteArray(bytes));
    }
    if (value instanceof byte[] bytes) {
      return "x" + Hex.encodeHexString(bytes);
    }
    return value instanceof UUID ? "x" + value.toString().replace("-", "") : null;
  }

  /** The key of a double: an integer made of its bits, in the order of the numbers. */
  private static long key(double value) {
    long bits = Double.doubleToLongBits(value == 0 ? 0.0 : value);
    return bits < 0 ? bits ^ Long.MAX_VALUE : bits;
  }
}
