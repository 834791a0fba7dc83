package io.puffinindex.spark.pages;

import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.shaded.org.apache.parquet.column.EncodingStats;
import org.apache.iceberg.shaded.org.apache.parquet.format.Encoding;
import org.apache.iceberg.shaded.org.apache.parquet.format.PageHeader;
import org.apache.iceberg.shaded.org.apache.parquet.format.Util;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.iceberg.shaded.org.apache.parquet.io.SeekableInputStream;

/**
 * The dictionary pages of a row group. A column of many values begins with pages that point into a
 * large dictionary, and goes on without it; only the header of a page says which it does.
 */
final class DictionaryPages {
  /** Reading a dictionary of this size along costs less than finding out whether it is needed. */
  private static final int SMALL_BYTES = 64 << 10;

  private static final int HEADER_BYTES = 11;

  private final ReadAhead ahead;

  /** Dictionaries that may be needed, and the wanted pages of their columns. */
  private final Map<Range, List<Range>> unsure = new LinkedHashMap<>();

  DictionaryPages(ReadAhead ahead) {
    this.ahead = ahead;
  }

  /**
   * Add a column chunk, if it has a dictionary.
   *
   * @param end where its first data page begins
   * @param wanted those data pages that are read
   * @return the dictionary, if it is to be read together with these pages; else no range
   */
  List<Range> add(ColumnChunkMetaData chunk, long end, List<Range> wanted) {
    Range dictionary = new Range(chunk.getStartingPos(), end);
    if (dictionary.length() <= 0) {
      return List.of();
    }
    EncodingStats encodings = chunk.getEncodingStats();
    boolean isNeeded = encodings != null && !encodings.hasNonDictionaryEncodedPages();
    if (isNeeded || dictionary.length() <= SMALL_BYTES) {
      return List.of(dictionary);
    }
    unsure.put(dictionary, wanted);
    return List.of();
  }

  /**
   * Read the dictionaries that wanted pages need. A page to skip takes the place of each other one.
   * The wanted pages are held by now.
   */
  void fetch() throws IOException {
    List<Range> needed = new ArrayList<>();
    for (Map.Entry<Range, List<Range>> one : unsure.entrySet()) {
      Range dictionary = one.getKey();
      if (isNeeded(one.getValue())) {
        needed.add(dictionary);
      } else {
        ahead.put(dictionary.first(), pageToSkip(Math.toIntExact(dictionary.length())));
      }
    }
    ahead.fetch(needed);
  }

  private boolean isNeeded(List<Range> pages) throws IOException {
    SeekableInputStream stream = ahead.newStream();
    for (Range page : pages) {
      stream.seek(page.first());
      PageHeader header = Util.readPageHeader(stream);
      Encoding encoding =
          header.isSetData_page_header_v2()
              ? header.getData_page_header_v2().getEncoding()
              : header.getData_page_header().getEncoding();
      if (encoding == Encoding.PLAIN_DICTIONARY || encoding == Encoding.RLE_DICTIONARY) {
        return true;
      }
    }
    return false;
  }

  /**
   * An index page, of which Parquet's readers read the header alone: type, and size of the rest.
   */
  private static byte[] pageToSkip(int length) {
    byte[] page = new byte[length];
    int number = 0;
    for (int one : new int[] {0x15, 2, 0x15, 0, 0x15}) {
      page[number++] = (byte) one;
    }
    // A number of five bytes, whatever its value: the doubled size, seven bits a byte.
    long left = 2L * (length - HEADER_BYTES);
    for (; number < HEADER_BYTES - 1; number++) {
      boolean isLast = number == HEADER_BYTES - 2;
      page[number] = (byte) ((left & 0x7f) | (isLast ? 0 : 0x80));
      left >>= 7;
    }
    return page;
  }
}
