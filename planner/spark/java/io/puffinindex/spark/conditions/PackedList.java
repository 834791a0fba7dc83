package io.puffinindex.spark.conditions;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.function.Supplier;
import org.apache.spark.unsafe.types.UTF8String;

/** Long lists of values as bytes: the forms N and B of {@code docs/hook-protocol.md}, in base64. */
public final class PackedList {
  private static final int MOST_IN_JSON = 64;
  private static final int HEADER_BYTES = 5;
  private static final byte[] NONE = {};

  private PackedList() {}

  /** A long list of whole numbers, texts or bytes; otherwise what is sent else. */
  public static Object of(List<Object> values, Supplier<List<?>> otherwise) {
    if (values.size() <= MOST_IN_JSON) {
      return otherwise.get();
    }
    boolean areNumbers = isNumber(values.get(0));
    List<byte[]> contents = new ArrayList<>();
    int length = HEADER_BYTES + values.size() * (areNumbers ? Long.BYTES : Integer.BYTES);
    for (Object value : values) {
      byte[] content = areNumbers ? NONE : content(value);
      if (content == null || (areNumbers && !isNumber(value))) {
        return otherwise.get();
      }
      contents.add(content);
      length += content.length;
    }
    ByteBuffer packed =
        ByteBuffer.allocate(length).put((byte) (areNumbers ? 'N' : 'B')).putInt(values.size());
    if (areNumbers) {
      values.forEach(value -> packed.putLong(((Number) value).longValue()));
    } else {
      contents.forEach(content -> packed.putInt(content.length));
      contents.forEach(packed::put);
    }
    return Base64.getEncoder().encodeToString(packed.array());
  }

  private static boolean isNumber(Object value) {
    return value instanceof Integer || value instanceof Long;
  }

  /** The bytes of a text or of bytes; null for another value. */
  static byte[] content(Object value) {
    return value instanceof UTF8String text
        ? text.getBytes()
        : value instanceof byte[] bytes ? bytes : null;
  }
}
