package io.puffinindex.spark;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.commons.codec.binary.Hex;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.util.ByteBuffers;

/** The values that identity partitions give a data file, as {@code puffin_index/data/constants.py} writes them. */
public class PartitionConstants {
  private PartitionConstants() {}

  /** The constants of a task's data file; empty without identity partitions, null if a value has no text. */
  public static String of(FileScanTask task) throws Exception {
    List fields = task.spec().fields();
    if (fields.isEmpty()) {
      return "";
    }
    StructLike partition = task.partition();
    Map texts = new TreeMap();
    for (int i = 0; i < fields.size(); i++) {
      PartitionField field = (PartitionField) fields.get(i);
      if (field.transform().isIdentity()) {
        String text = text(partition.get(i, Object.class));
        if (text == null) {
          return null;
        }
        texts.put(field.sourceId(), field.sourceId() + "=" + text);
      }
    }
    return String.join(";", texts.values());
  }

  private static String text(Object value) throws Exception {
    if (value == null) {
      return "null";
    }
    if (value instanceof Boolean) {
      return ((Boolean) value).booleanValue() ? "1" : "0";
    }
    if (value instanceof Integer || value instanceof Long) {
      return value.toString();
    }
    if (value instanceof Float || value instanceof Double) {
      return Long.toString(key(((Number) value).doubleValue()));
    }
    if (value instanceof BigDecimal) {
      return ((BigDecimal) value).unscaledValue().toString();
    }
    if (value instanceof CharSequence) {
      return "x" + Hex.encodeHexString(value.toString().getBytes("UTF-8"));
    }
    if (value instanceof ByteBuffer) {
      return "x" + Hex.encodeHexString(ByteBuffers.toByteArray((ByteBuffer) value));
    }
    if (value instanceof byte[]) {
      return "x" + Hex.encodeHexString((byte[]) value);
    }
    if (value instanceof UUID) {
      return "x" + value.toString().replace("-", "");
    }
    return null;
  }

  /** The key of a double: an integer made of its bits, in the order of the numbers. */
  private static long key(double value) {
    long bits = Double.doubleToLongBits(value == 0 ? 0.0 : value);
    return bits < 0 ? bits ^ Long.MAX_VALUE : bits;
  }
}
