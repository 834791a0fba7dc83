package io.puffinindex.spark.pages;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.TreeMap;
import java.util.function.LongPredicate;
import java.util.function.UnaryOperator;
import org.apache.iceberg.exceptions.RuntimeIOException;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.SeekableInputStream;
import org.apache.iceberg.shaded.org.apache.parquet.ParquetReadOptions;
import org.apache.iceberg.shaded.org.apache.parquet.conf.PlainParquetConfiguration;
import org.apache.iceberg.shaded.org.apache.parquet.format.FileMetaData;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.iceberg.shaded.org.apache.parquet.schema.MessageType;
import org.apache.spark.util.CollectionAccumulator;

/**
 * A Parquet data file in which some row groups have only the rows that a query wants.
 *
 * <p>The bytes of the data file stay where they are. Behind them stand copies of the wanted rows,
 * and a footer that names these copies in the place of the row groups that they come from. So
 * Iceberg's own readers read the rows, and all that they know of types, defaults, deletes and
 * partitions holds. Rows keep their positions in the data file.
 *
 * <p>Where anything is not understood, this file has only the bytes of the data file, and Iceberg
 * reads all rows.
 */
final class FewRowsFile implements InputFile {
  /** Copying this many rows more takes less time than a row group more. */
  private static final int GAP_ROWS = 64;

  /** Copying more row groups than this out of one takes longer than reading it. */
  private static final int MOST_ROW_GROUPS = 2000;

  private final InputFile file;
  private final List<WantedRowGroup> wanted;
  private final LongPredicate isRead;
  private final UnaryOperator<MessageType> projection;
  private final boolean withPositions;
  private final CollectionAccumulator<String> notPicked;

  /** What stands behind the bytes of the data file; null before somebody asks. */
  private byte[] appended;

  /**
   * A data file with few rows.
   *
   * @param isRead whether a row group is read, by the byte in its middle
   * @param projection the columns that are read, of those that the file has
   * @param withPositions whether the positions of rows in the data file matter
   * @param notPicked where to say why all rows are read instead
   */
  FewRowsFile(
      InputFile file,
      List<WantedRowGroup> wanted,
      LongPredicate isRead,
      UnaryOperator<MessageType> projection,
      boolean withPositions,
      CollectionAccumulator<String> notPicked) {
    this.file = file;
    this.wanted = wanted;
    this.isRead = isRead;
    this.projection = projection;
    this.withPositions = withPositions;
    this.notPicked = notPicked;
  }

  @Override
  public String location() {
    return file.location();
  }

  @Override
  public boolean exists() {
    return file.exists();
  }

  @Override
  public long getLength() {
    return file.getLength() + appended().length;
  }

  @Override
  public SeekableInputStream newStream() {
    byte[] behind = appended();
    return behind.length == 0
        ? file.newStream()
        : new BytesStream(new Appended(file.newStream(), file.getLength(), behind));
  }

  private synchronized byte[] appended() {
    if (appended == null) {
      try (ReadAhead ahead = new ReadAhead(file)) {
        appended = build(ahead);
      } catch (IOException | RuntimeException | LinkageError e) {
        if (Thread.currentThread().isInterrupted()) {
          throw new RuntimeIOException(
              new IOException(e), "interrupted while reading %s", location());
        }
        PagesNotPicked.tell(notPicked, location(), e);
        appended = new byte[0];
      }
    }
    return appended;
  }

  /** Copies of the wanted rows, and a footer; nothing if there is nothing to copy. */
  private byte[] build(ReadAhead ahead) throws IOException {
    ahead.fetchFooter();
    FileMetaData metadata = FewRowsFooter.metadata(ahead::hold, file.getLength());
    if (metadata.isSetEncryption_algorithm()) {
      throw new IOException("an encrypted file");
    }
    FewRowsFooter footer = new FewRowsFooter(metadata, file.getLength());
    // The order of the footer, and each row group once.
    TreeMap<Integer, WantedRowGroup> numbered = new TreeMap<>();
    for (WantedRowGroup own : wanted) {
      numbered.put(footer.numberOf(own), own);
    }
    byte[] copies;
    try (ParquetFileReader reader =
        ParquetFileReader.open(
            ahead, ParquetReadOptions.builder(new PlainParquetConfiguration()).build())) {
      MessageType columns = projection.apply(reader.getFileMetaData().getSchema());
      try (RowCopies copied = new RowCopies(reader, ahead, columns)) {
        for (var one : numbered.entrySet()) {
          int number = one.getKey();
          List<Range> all = one.getValue().ranges();
          List<Range> rows = withPositions ? Range.joined(all, GAP_ROWS) : all;
          boolean isWorthIt = !withPositions || rows.size() <= MOST_ROW_GROUPS;
          if (isWorthIt
              && isRead.test(footer.middle(number))
              && copied.add(number, rows, withPositions)) {
            footer.replace(number, withPositions ? rows : List.of(Range.together(rows)));
          }
        }
        if (!footer.isChanged()) {
          return new byte[0];
        }
        copies = copied.end();
      }
    }
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    out.write(copies);
    FewRowsFooter.Bytes written =
        (first, count) -> Arrays.copyOfRange(copies, (int) first, (int) first + count);
    footer.write(FewRowsFooter.metadata(written, copies.length).getRow_groups(), out);
    return out.toByteArray();
  }

  /** The bytes of a file, and more behind them. */
  @SuppressWarnings("ArrayRecordComponent") // nobody compares it
  private record Appended(SeekableInputStream file, long length, byte[] behind)
      implements BytesStream.Source {
    @Override
    public int readAt(long position, byte[] into, int offset, int count) throws IOException {
      if (position < length) {
        int most = (int) Math.min(count, length - position);
        return BytesStream.readAt(file, position, into, offset, most);
      }
      int most = (int) Math.min(count, length + behind.length - position);
      if (most > 0) {
        System.arraycopy(behind, (int) (position - length), into, offset, most);
      }
      return most > 0 ? most : -1;
    }

    @Override
    public void close() throws IOException {
      file.close();
    }
  }
}
