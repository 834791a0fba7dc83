package io.puffinindex.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
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
public class PackedList {
  private static final int MOST_IN_JSON = 64;
  private static final int HEADER_BYTES = 5;

  private static final ObjectMapper JSON = new ObjectMapper();

  private PackedList() {}

  /** All values of a long list; null for a short list, and if some value is no whole number, text or bytes. */
  public static String of(List values) {
    if (values.size() <= MOST_IN_JSON) {
      return null;
    }
    boolean areNumbers = isNumber(values.get(0));
    List contents = new ArrayList();
    int length = HEADER_BYTES;
    for (Object value : values) {
      byte[] content = areNumbers ? null : content(value);
      if (areNumbers ? !isNumber(value) : content == null) {
        return null;
      }
      contents.add(content);
      length += areNumbers ? Long.BYTES : Integer.BYTES + content.length;
    }
    ByteBuffer packed = ByteBuffer.allocate(length).put((byte) (areNumbers ? 'N' : 'B')).putInt(values.size());
    for (int i = 0; i < values.size(); i++) {
      if (areNumbers) {
        packed.putLong(((Number) values.get(i)).longValue());
      } else {
        packed.putInt(((byte[]) contents.get(i)).length);
      }
    }
    for (int i = 0; i < values.size() && !areNumbers; i++) {
      packed.put((byte[]) contents.get(i));
    }
    return Base64.getEncoder().encodeToString(packed.array());
  }

  /** A filter of Iceberg's JSON with its long lists in this form. */
  public static String inFilter(String text) {
    JsonNode filter;
    try {
      filter = JSON.readTree(text);
    } catch (JsonProcessingException e) {
      return text; // it nests deeper than Jackson reads
    }
    boolean isChanged = false;
    for (ObjectNode test : filter.findParents("values")) {
      List values = new ArrayList();
      for (JsonNode value : test.get("values")) {
        values.add(value.isTextual() ? (Object) value.textValue() : (Object) value.numberValue());
      }
      String packed = of(values);
      if (packed != null) {
        test.put("values", packed);
        isChanged = true;
      }
    }
    return isChanged ? filter.toString() : text;
  }

  private static boolean isNumber(Object value) {
    return value instanceof Integer || value instanceof Long;
  }

  /** The bytes of a text or of bytes; null for anything else, and for a text with unpaired surrogates. */
  private static byte[] content(Object value) {
    if (value instanceof UTF8String) {
      return ((UTF8String) value).getBytes();
    }
    if (!(value instanceof CharSequence)) {
      return value instanceof byte[] ? (byte[]) value : null;
    }
    try {
      // A plain conversion would put question marks in the place of surrogates.
      ByteBuffer encoded = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap((CharSequence) value));
      byte[] content = new byte[encoded.remaining()];
      encoded.get(content);
      return content;
    } catch (CharacterCodingException e) {
      return null;
    }
  }
}
