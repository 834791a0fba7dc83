package io.puffinindex.spark.scans;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.commons.codec.binary.Hex;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.util.ByteBuffers;
import org.apache.iceberg.util.UUIDUtil;

/** The values of identity partitions, as {@code puffin_index/data/constants.py} has them. */
public final class PartitionConstants {
  private PartitionConstants() {}

  /** Empty without identity partitions, null if a value has no text. */
  public static String of(FileScanTask task) {
    var fields = task.spec().fields();
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
    byte[] bytes =
        value instanceof byte[] array
            ? array
            : value instanceof CharSequence text
                ? text.toString().getBytes(StandardCharsets.UTF_8)
                : value instanceof ByteBuffer buffer
                    ? ByteBuffers.toByteArray(buffer)
                    : value instanceof UUID id ? UUIDUtil.convert(id) : null;
    return bytes == null ? null : "x" + Hex.encodeHexString(bytes);
  }

  /** The key of a double: an integer made of its bits, in the order of the numbers. */
  private static long key(double value) {
    long bits = Double.doubleToLongBits(value == 0 ? 0.0 : value);
    return bits < 0 ? bits ^ Long.MAX_VALUE : bits;
  }
}
