package io.puffinindex.spark.pages;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.IntStream;
import org.apache.iceberg.shaded.org.apache.parquet.format.ColumnChunk;
import org.apache.iceberg.shaded.org.apache.parquet.format.ColumnMetaData;
import org.apache.iceberg.shaded.org.apache.parquet.format.CompressionCodec;
import org.apache.iceberg.shaded.org.apache.parquet.format.Encoding;
import org.apache.iceberg.shaded.org.apache.parquet.format.FileMetaData;
import org.apache.iceberg.shaded.org.apache.parquet.format.RowGroup;
import org.apache.iceberg.shaded.org.apache.parquet.format.Util;

/**
 * The footer of a data file in which copies of few rows, which stand behind the file, take the
 * place of some row groups.
 *
 * <p>A reader counts rows by row groups, also by those outside of its split. So a row group without
 * bytes, which lies outside of all splits, stands for rows that are not copied.
 */
final class FewRowsFooter {
  private static final int TRAILER_BYTES = 8;
  private static final byte[] MAGIC = "PAR1".getBytes(StandardCharsets.US_ASCII);

  private final FileMetaData metadata;
  private final long length;

  /** By number of a row group, the rows of each copy that takes its place. */
  private final TreeMap<Integer, List<Range>> replaced = new TreeMap<>();

  /** Reads just so many bytes from a first one on. */
  interface Bytes {
    byte[] read(long first, int count) throws IOException;
  }

  /** The metadata at the end of a Parquet file of a length. */
  static FileMetaData metadata(Bytes file, long length) throws IOException {
    byte[] trailer = file.read(length - TRAILER_BYTES, TRAILER_BYTES);
    int footer = ByteBuffer.wrap(trailer).order(ByteOrder.LITTLE_ENDIAN).getInt();
    byte[] bytes = file.read(length - TRAILER_BYTES - footer, footer);
    return Util.readFileMetaData(new ByteArrayInputStream(bytes));
  }

  FewRowsFooter(FileMetaData metadata, long length) {
    this.metadata = metadata;
    this.length = length;
  }

  /** The number in the footer of the only row group whose middle is in a range of bytes. */
  int numberOf(WantedRowGroup wanted) throws IOException {
    int[] found =
        IntStream.range(0, metadata.getRow_groups().size())
            .filter(i -> wanted.first() <= middle(i) && middle(i) < wanted.end())
            .toArray();
    if (found.length != 1) {
      throw new IOException(
          found.length + " row groups in bytes " + wanted.first() + " to " + wanted.end());
    }
    return found[0];
  }

  /** The byte by which readers tell whose split has a row group. */
  long middle(int number) {
    RowGroup rowGroup = metadata.getRow_groups().get(number);
    long size =
        rowGroup.isSetTotal_compressed_size()
            ? rowGroup.getTotal_compressed_size()
            : rowGroup.getColumns().stream()
                .mapToLong(one -> one.getMeta_data().getTotal_compressed_size())
                .sum();
    return start(rowGroup) + size / 2;
  }

  /** Let a row group be replaced by copies of ranges of its rows. */
  void replace(int number, List<Range> rows) {
    replaced.put(number, rows);
  }

  boolean isChanged() {
    return !replaced.isEmpty();
  }

  /**
   * Write the footer, given the copies in the order of the row groups that they take the place of.
   */
  void write(List<RowGroup> copies, ByteArrayOutputStream out) throws IOException {
    put(copies);
    int before = out.size();
    Util.writeFileMetaData(metadata, out);
    ByteBuffer trailer = ByteBuffer.allocate(TRAILER_BYTES).order(ByteOrder.LITTLE_ENDIAN);
    out.write(trailer.putInt(out.size() - before).put(MAGIC).array());
  }

  private void put(List<RowGroup> copies) {
    Iterator<RowGroup> next = copies.iterator();
    List<RowGroup> before = metadata.getRow_groups();
    List<RowGroup> after = new ArrayList<>();
    for (int i = 0; i < before.size(); i++) {
      RowGroup original = before.get(i);
      List<Range> ranges = replaced.get(i);
      if (ranges == null) {
        after.add(original);
        continue;
      }
      long at = 0;
      for (Range range : ranges) {
        if (range.first() > at) {
          after.add(absent(original, range.first() - at, after.size()));
        }
        after.add(copied(original, next.next(), middle(i)));
        at = range.end();
      }
      if (original.getNum_rows() > at) {
        after.add(absent(original, original.getNum_rows() - at, after.size()));
      }
    }
    metadata.setRow_groups(after);
  }

  private static long start(RowGroup rowGroup) {
    return start(rowGroup.getColumns().get(0).getMeta_data());
  }

  private static long start(ColumnMetaData column) {
    long data = column.getData_page_offset();
    return column.isSetDictionary_page_offset()
        ? Math.min(data, column.getDictionary_page_offset())
        : data;
  }

  /** A copy, which is in the split that the row group was in. */
  private RowGroup copied(RowGroup original, RowGroup copy, long middle) {
    Map<List<String>, ColumnChunk> chunks = new HashMap<>();
    copy.getColumns().forEach(one -> chunks.put(one.getMeta_data().getPath_in_schema(), one));
    RowGroup placed = new RowGroup(new ArrayList<>(), 0, copy.getNum_rows());
    for (ColumnChunk column : original.getColumns()) {
      ColumnMetaData known = column.getMeta_data();
      ColumnChunk own = chunks.get(known.getPath_in_schema());
      placed.addToColumns(
          own == null ? withoutBytes(known, copy.getNum_rows()) : moved(own.getMeta_data()));
    }
    // A reader adds half of the size to the start.
    placed.setTotal_compressed_size(2 * (middle - start(placed)));
    return placed;
  }

  /** A column chunk of a copy, whose bytes stand behind the data file. */
  private ColumnChunk moved(ColumnMetaData column) {
    ColumnMetaData moved = new ColumnMetaData(column);
    moved.setData_page_offset(length + column.getData_page_offset());
    return new ColumnChunk(length).setMeta_data(moved);
  }

  /** A column chunk that nobody reads. It is there because a column without one counts as NULL. */
  private ColumnChunk withoutBytes(ColumnMetaData column, long rowCount) {
    ColumnMetaData described =
        new ColumnMetaData(
            column.getType(),
            List.of(Encoding.PLAIN),
            column.getPath_in_schema(),
            CompressionCodec.UNCOMPRESSED,
            rowCount,
            0,
            0,
            length);
    return new ColumnChunk(length).setMeta_data(described);
  }

  /** Rows that nobody reads; no two such row groups are equal, as readers look them up. */
  private RowGroup absent(RowGroup original, long rowCount, int number) {
    ColumnChunk column = withoutBytes(original.getColumns().get(0).getMeta_data(), rowCount);
    return new RowGroup(new ArrayList<>(List.of(column)), number, rowCount)
        .setTotal_compressed_size(0);
  }
}
