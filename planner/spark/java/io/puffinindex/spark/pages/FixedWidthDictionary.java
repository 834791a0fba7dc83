package io.puffinindex.spark.pages;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.apache.iceberg.shaded.org.apache.parquet.bytes.HeapByteBufferAllocator;
import org.apache.iceberg.shaded.org.apache.parquet.column.ColumnDescriptor;
import org.apache.iceberg.shaded.org.apache.parquet.column.Dictionary;
import org.apache.iceberg.shaded.org.apache.parquet.column.Encoding;
import org.apache.iceberg.shaded.org.apache.parquet.column.page.DictionaryPage;
import org.apache.iceberg.shaded.org.apache.parquet.io.ParquetDecodingException;
import org.apache.iceberg.shaded.org.apache.parquet.io.api.Binary;

/**
 * A dictionary that decodes a value when a row needs it. All of its values have the same width. Few
 * rows need few of the 100,000 values that a dictionary may have.
 */
final class FixedWidthDictionary extends Dictionary {
  private final ByteBuffer values;
  private final int width;
  private final int size;

  private FixedWidthDictionary(Encoding encoding, ByteBuffer values, int width, int size) {
    super(encoding);
    this.values = values.order(ByteOrder.LITTLE_ENDIAN);
    this.width = width;
    this.size = size;
    if ((long) width * size > values.remaining()) {
      throw new ParquetDecodingException(
          size + " values of a dictionary in " + values.remaining() + " bytes");
    }
  }

  /** The same page; it decodes a value of one width when a row needs the value. */
  static DictionaryPage lazy(DictionaryPage page) {
    return page == null ? null : new Page(page);
  }

  private static int width(ColumnDescriptor column) {
    var type = column.getPrimitiveType();
    return switch (type.getPrimitiveTypeName()) {
      case INT32, FLOAT -> Integer.BYTES;
      case INT64, DOUBLE -> Long.BYTES;
      case INT96 -> Long.BYTES + Integer.BYTES;
      case FIXED_LEN_BYTE_ARRAY -> type.getTypeLength();
      default -> 0;
    };
  }

  @Override
  public int getMaxId() {
    return size - 1;
  }

  @Override
  public int decodeToInt(int id) {
    return values.getInt(place(id));
  }

  @Override
  public long decodeToLong(int id) {
    return values.getLong(place(id));
  }

  @Override
  public float decodeToFloat(int id) {
    return values.getFloat(place(id));
  }

  @Override
  public double decodeToDouble(int id) {
    return values.getDouble(place(id));
  }

  @Override
  public Binary decodeToBinary(int id) {
    return Binary.fromConstantByteBuffer(values.slice(place(id), width));
  }

  private int place(int id) {
    if (id < 0 || id >= size) {
      throw new ParquetDecodingException("value " + id + " of a dictionary that has " + size);
    }
    return values.position() + id * width;
  }

  private static final class Page extends DictionaryPage {
    Page(DictionaryPage page) {
      super(
          page.getBytes(),
          page.getUncompressedSize(),
          page.getDictionarySize(),
          page.getEncoding());
    }

    @Override
    public Dictionary decode(ColumnDescriptor column) {
      int width = width(column);
      if (width == 0) {
        return super.decode(column);
      }
      ByteBuffer bytes =
          getBytes().toByteBuffer(HeapByteBufferAllocator.getInstance(), buffer -> {});
      return new FixedWidthDictionary(getEncoding(), bytes, width, getDictionarySize());
    }
  }
}
