package io.puffinindex.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.spark.unsafe.types.UTF8String;

/** Long lists of values as bytes: the forms N and B of {@code docs/hook-protocol.md}, in base64. */
public final class PackedList {
  private static final int MOST_IN_JSON = 64;
  private static final int HEADER_BYTES = 5;
  private static final byte[] NONE = {};

  private PackedList() {}

  /** A list in this form if it can have it; otherwise as it is sent else. */
  public static Object of(List<Object> values, Object otherwise) {
    String packed = of(values);
    return packed == null ? otherwise : packed;
  }

  /** A long list of whole numbers, texts or bytes; null for a short list or other values. */
  private static String of(List<Object> values) {
    if (values.size() <= MOST_IN_JSON) {
      return null;
    }
    boolean areNumbers = isNumber(values.get(0));
    List<byte[]> contents = new ArrayList<>();
    int length = HEADER_BYTES + values.size() * (areNumbers ? Long.BYTES : Integer.BYTES);
    for (Object value : values) {
      byte[] content = areNumbers ? NONE : content(value);
      if (content == null || (areNumbers && !isNumber(value))) {
        return null;
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

  /** A filter of Iceberg's JSON with its long lists in this form. */
  public static String inFilter(String text) {
    JsonNode filter;
    try {
      filter = Node.JSON.readTree(text);
    } catch (JsonProcessingException e) {
      return text; // it nests deeper than Jackson reads
    }
    boolean isChanged = false;
    for (JsonNode test : filter.findParents("values")) {
      List<Object> values = new ArrayList<>();
      test.get("values")
          .forEach(
              value -> values.add(value.isTextual() ? value.textValue() : value.numberValue()));
      String packed = of(values);
      if (packed != null) {
        ((ObjectNode) test).put("values", packed);
        isChanged = true;
      }
    }
    return isChanged ? filter.toString() : text;
  }

  private static boolean isNumber(Object value) {
    return value instanceof Integer || value instanceof Long;
  }

  /** The bytes of a text or of bytes; null for anything else, and for unpaired surrogates. */
  private static byte[] content(Object value) {
    if (value instanceof UTF8String text) {
      return text.getBytes();
    }
    if (!(value instanceof CharSequence text)) {
      return value instanceof byte[] bytes ? bytes : null;
    }
    try {
      // A plain conversion would put question marks in the place of surrogates.
      ByteBuffer encoded = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
      byte[] content = new byte[encoded.remaining()];
      encoded.get(content);
      return content;
    } catch (CharacterCodingException e) {
      return null;
    }
  }
}
