package io.puffinindex.spark.pages;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.function.LongPredicate;
import java.util.function.UnaryOperator;
import org.apache.iceberg.exceptions.RuntimeIOException;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.SeekableInputStream;
import org.apache.iceberg.shaded.org.apache.parquet.ParquetReadOptions;
import org.apache.iceberg.shaded.org.apache.parquet.format.FileMetaData;
import org.apache.iceberg.shaded.org.apache.parquet.format.Util;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.iceberg.shaded.org.apache.parquet.schema.MessageType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

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
  static final int TRAILER_BYTES = 8;

  private static final Logger LOG = LoggerFactory.getLogger(FewRowsFile.class);
  private static final byte[] MAGIC = "PAR1".getBytes(StandardCharsets.US_ASCII);

  /** Copying this many rows more takes less time than a row group more. */
  private static final int GAP_ROWS = 64;

  /** Copying more row groups than this out of one takes longer than reading it. */
  private static final int MOST_ROW_GROUPS = 2000;

  private final InputFile file;
  private final List<WantedRowGroup> wanted;
  private final LongPredicate isRead;
  private final UnaryOperator<MessageType> projection;
  private final boolean withPositions;

  /** What stands behind the bytes of the data file; null before somebody asks. */
  private byte[] appended;

  /**
   * A data file with few rows.
   *
   * @param isRead whether a row group is read, by the byte in its middle
   * @param projection the columns that are read, of those that the file has
   * @param withPositions whether the positions of rows in the data file matter
   */
  FewRowsFile(
      InputFile file,
      List<WantedRowGroup> wanted,
      LongPredicate isRead,
      UnaryOperator<MessageType> projection,
      boolean withPositions) {
    this.file = file;
    this.wanted = wanted;
    this.isRead = isRead;
    this.projection = projection;
    this.withPositions = withPositions;
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
      } catch (IOException | RuntimeException e) {
        if (Thread.currentThread().isInterrupted()) {
          throw new RuntimeIOException(
              new IOException(e), "interrupted while reading %s", location());
        }
        LOG.warn("pages not picked, all rows of the row groups are read: {}", location(), e);
        appended = new byte[0];
      }
    }
    return appended;
  }

  /** Copies of the wanted rows, and a footer; nothing if there is nothing to copy. */
  private byte[] build(ReadAhead ahead) throws IOException {
    long length = file.getLength();
    byte[] trailer = ahead.read(length - TRAILER_BYTES, TRAILER_BYTES);
    int footerBytes = ByteBuffer.wrap(trailer).order(ByteOrder.LITTLE_ENDIAN).getInt();
    long first = length - TRAILER_BYTES - footerBytes;
    ahead.fetch(List.of(new Range(first, length)));
    byte[] footer = ahead.read(first, footerBytes);
    FileMetaData metadata = Util.readFileMetaData(new ByteArrayInputStream(footer));
    if (metadata.isSetEncryption_algorithm()) {
      throw new IOException("an encrypted file");
    }
    FewRowsFooter changed = new FewRowsFooter(metadata, length);
    byte[] copies;
    try (ParquetFileReader reader =
        ParquetFileReader.open(ahead, ParquetReadOptions.builder().build())) {
      MessageType columns = projection.apply(reader.getFileMetaData().getSchema());
      try (RowCopies copied = new RowCopies(reader, ahead, columns)) {
        for (WantedRowGroup own : wanted) {
          int number = changed.numberOf(own);
          List<Range> rows = withPositions ? Range.joined(own.ranges(), GAP_ROWS) : own.ranges();
          boolean isWorthIt = !withPositions || rows.size() <= MOST_ROW_GROUPS;
          if (isWorthIt
              && isRead.test(changed.middle(number))
              && copied.add(number, rows, withPositions)) {
            changed.replace(number, withPositions ? rows : List.of(Range.first(rows)));
          }
        }
        if (!changed.isChanged()) {
          return new byte[0];
        }
        copies = copied.end();
        changed.put(RowCopies.rowGroups(copies));
      }
    }
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    out.write(copies);
    Util.writeFileMetaData(metadata, out);
    int written = out.size() - copies.length;
    out.write(
        ByteBuffer.allocate(Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN).putInt(written).array());
    out.write(MAGIC);
    return out.toByteArray();
  }

  /** The bytes of a file, and more behind them. */
  @SuppressWarnings("ArrayRecordComponent") // nobody compares it
  private record Appended(SeekableInputStream file, long length, byte[] behind)
      implements BytesStream.Source {
    @Override
    public int readAt(long position, byte[] into, int offset, int count) throws IOException {
      if (position < length) {
        if (file.getPos() != position) {
          file.seek(position);
        }
        return file.read(into, offset, (int) Math.min(count, length - position));
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
