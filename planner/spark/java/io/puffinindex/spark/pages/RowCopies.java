package io.puffinindex.spark.pages;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.PrimitiveIterator;
import java.util.stream.IntStream;
import org.apache.iceberg.shaded.org.apache.parquet.bytes.BytesInput;
import org.apache.iceberg.shaded.org.apache.parquet.bytes.HeapByteBufferAllocator;
import org.apache.iceberg.shaded.org.apache.parquet.column.ColumnDescriptor;
import org.apache.iceberg.shaded.org.apache.parquet.column.ColumnReader;
import org.apache.iceberg.shaded.org.apache.parquet.column.ColumnWriter;
import org.apache.iceberg.shaded.org.apache.parquet.column.Encoding;
import org.apache.iceberg.shaded.org.apache.parquet.column.ParquetProperties;
import org.apache.iceberg.shaded.org.apache.parquet.column.ValuesType;
import org.apache.iceberg.shaded.org.apache.parquet.column.impl.ColumnReadStoreImpl;
import org.apache.iceberg.shaded.org.apache.parquet.column.impl.ColumnWriteStoreV1;
import org.apache.iceberg.shaded.org.apache.parquet.column.page.DataPage;
import org.apache.iceberg.shaded.org.apache.parquet.column.page.DataPageV1;
import org.apache.iceberg.shaded.org.apache.parquet.column.page.DataPageV2;
import org.apache.iceberg.shaded.org.apache.parquet.column.page.DictionaryPage;
import org.apache.iceberg.shaded.org.apache.parquet.column.page.PageReadStore;
import org.apache.iceberg.shaded.org.apache.parquet.column.page.PageReader;
import org.apache.iceberg.shaded.org.apache.parquet.column.values.factory.DefaultV1ValuesWriterFactory;
import org.apache.iceberg.shaded.org.apache.parquet.compression.CompressionCodecFactory.BytesInputCompressor;
import org.apache.iceberg.shaded.org.apache.parquet.conf.PlainParquetConfiguration;
import org.apache.iceberg.shaded.org.apache.parquet.example.DummyRecordConverter;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.CodecFactory;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.ColumnChunkPageWriteStore;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.ParquetFileWriter;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.iceberg.shaded.org.apache.parquet.internal.column.columnindex.OffsetIndex;
import org.apache.iceberg.shaded.org.apache.parquet.internal.column.columnindex.OffsetIndexBuilder;
import org.apache.iceberg.shaded.org.apache.parquet.internal.filter2.columnindex.ColumnIndexStore;
import org.apache.iceberg.shaded.org.apache.parquet.internal.filter2.columnindex.RowRanges;
import org.apache.iceberg.shaded.org.apache.parquet.internal.hadoop.metadata.IndexReference;
import org.apache.iceberg.shaded.org.apache.parquet.io.ParquetDecodingException;
import org.apache.iceberg.shaded.org.apache.parquet.io.api.GroupConverter;
import org.apache.iceberg.shaded.org.apache.parquet.schema.MessageType;

/**
 * Copies rows of a Parquet file into row groups of their own, in memory: of each column the pages
 * that overlap the rows are read, and the values of these rows are written again, as they are.
 */
final class RowCopies implements AutoCloseable {
  private static final ParquetProperties PROPERTIES =
      ParquetProperties.builder()
          // By default all writers of this JVM share one, which does what the last of them wants.
          .withValuesWriterFactory(new DefaultV1ValuesWriterFactory())
          .withDictionaryEncoding(false)
          .withStatisticsEnabled(false)
          .withSizeStatisticsEnabled(false)
          .withPageWriteChecksumEnabled(false)
          .withAllocator(HeapByteBufferAllocator.getInstance())
          .build();

  private final ParquetFileReader reader;
  private final ReadAhead ahead;
  private final MessageType columns;
  private final CodecFactory codecs = new CodecFactory(new PlainParquetConfiguration(), 0);
  private final MemoryFile copy = new MemoryFile();
  private final ParquetFileWriter writer;

  /**
   * Copies of rows of a file.
   *
   * @param ahead where the reader reads
   * @param columns those that are copied, as the file has them
   */
  RowCopies(ParquetFileReader reader, ReadAhead ahead, MessageType columns) throws IOException {
    this.reader = reader;
    this.ahead = ahead;
    this.columns = columns;
    reader.setRequestedSchema(columns);
    writer =
        new ParquetFileWriter(
            copy, columns, ParquetFileWriter.Mode.CREATE, Long.MAX_VALUE, 0, null, PROPERTIES);
    writer.start();
  }

  /**
   * Copy ranges of rows of a row group, ascending, each into a row group of its own if {@code
   * apart}, otherwise all into one.
   *
   * @return false if these are all rows, or nothing says where the pages are: nothing is copied
   *     then
   */
  boolean add(int number, List<Range> ranges, boolean apart) throws IOException {
    BlockMetaData block = reader.getRowGroups().get(number);
    if (Range.together(ranges).length() == block.getRowCount()) {
      return false;
    }
    if (ranges.get(ranges.size() - 1).end() > block.getRowCount()) {
      throw new IOException("a row group of " + block.getRowCount() + " rows is to have " + ranges);
    }
    Map<List<String>, ColumnChunkMetaData> chunks = new HashMap<>();
    block.getColumns().forEach(one -> chunks.put(List.of(one.getPath().toArray()), one));
    List<Range> indexes = new ArrayList<>();
    for (ColumnDescriptor column : columns.getColumns()) {
      IndexReference place = chunks.get(List.of(column.getPath())).getOffsetIndexReference();
      if (place == null) {
        return false;
      }
      indexes.add(new Range(place.getOffset(), place.getOffset() + place.getLength()));
    }
    ahead.fetch(indexes);
    RowRanges rows = rowRanges(ranges, block.getRowCount());
    List<Range> pages = new ArrayList<>();
    DictionaryPages dictionaries = new DictionaryPages(ahead);
    ColumnIndexStore known = reader.getColumnIndexStore(number);
    for (ColumnDescriptor column : columns.getColumns()) {
      ColumnChunkMetaData chunk = chunks.get(List.of(column.getPath()));
      OffsetIndex index = known.getOffsetIndex(chunk.getPath());
      check(index, chunk, block.getRowCount());
      List<Range> own = pagesOf(index, rows, block.getRowCount());
      pages.addAll(own);
      pages.addAll(dictionaries.add(chunk, index.getOffset(0), own));
    }
    ahead.fetch(pages);
    dictionaries.fetch();
    try (PageReadStore store = reader.readFilteredRowGroup(number, rows)) {
      copy(store, ranges, apart);
    }
    ahead.forget();
    return true;
  }

  /** End with the last row group; return the bytes of a Parquet file of all copies. */
  byte[] end() throws IOException {
    writer.end(Map.of());
    return copy.bytes();
  }

  @Override
  public void close() throws IOException {
    writer.close();
  }

  /** The data pages of a column chunk that overlap some rows. */
  private static List<Range> pagesOf(OffsetIndex index, RowRanges rows, long rowCount) {
    List<Range> pages = new ArrayList<>();
    for (int i = 0; i < index.getPageCount(); i++) {
      if (rows.isOverlapping(index.getFirstRowIndex(i), index.getLastRowIndex(i, rowCount))) {
        long end = index.getOffset(i) + index.getCompressedPageSize(i);
        pages.add(new Range(index.getOffset(i), end));
      }
    }
    return pages;
  }

  /**
   * An offset index has no checksum: its pages follow one another to the end of the chunk, without
   * gaps, and so do rows.
   */
  private static void check(OffsetIndex index, ColumnChunkMetaData chunk, long rowCount) {
    int count = index.getPageCount();
    boolean fits = count > 0 && index.getFirstRowIndex(0) == 0;
    long place = fits ? index.getOffset(0) : 0;
    long row = 0;
    for (int i = 0; i < count; i++) {
      long end = index.getLastRowIndex(i, rowCount) + 1;
      fits &= end > row && index.getOffset(i) == place;
      place += index.getCompressedPageSize(i);
      row = end;
    }
    if (!fits || row != rowCount || place != chunk.getStartingPos() + chunk.getTotalSize()) {
      throw new ParquetDecodingException("an offset index that does not fit " + chunk);
    }
  }

  private void copy(PageReadStore store, List<Range> ranges, boolean apart) throws IOException {
    String writer = reader.getFileMetaData().getCreatedBy();
    // Parquet wants to know who takes values. Nobody does: they are asked for one by one.
    GroupConverter nobody = new DummyRecordConverter(columns).getRootConverter();
    List<ColumnReader> readers = new ArrayList<>();
    for (ColumnDescriptor column : columns.getColumns()) {
      var pages = new ColumnPages(store, column);
      readers.add(new ColumnReadStoreImpl(pages, nobody, columns, writer).getColumnReader(column));
    }
    for (Range range : apart ? ranges : List.of(Range.together(ranges))) {
      BytesInputCompressor compressor = codecs.getCompressor(CompressionCodecName.UNCOMPRESSED);
      var allocator = HeapByteBufferAllocator.getInstance();
      try (var pages = new ColumnChunkPageWriteStore(compressor, columns, allocator, 0, false);
          var out = new ColumnWriteStoreV1(columns, pages, PROPERTIES)) {
        List<ColumnWriter> writers =
            columns.getColumns().stream().map(out::getColumnWriter).toList();
        for (long row = 0; row < range.length(); row++) {
          for (int i = 0; i < readers.size(); i++) {
            copyRow(readers.get(i), writers.get(i));
          }
          out.endRecord();
        }
        out.flush();
        this.writer.startBlock(range.length());
        pages.flushToFileWriter(this.writer);
        this.writer.endBlock();
      }
    }
  }

  /** Copy the values that one row has in a column: one, none, or those of a list. */
  private static void copyRow(ColumnReader from, ColumnWriter to) {
    ColumnDescriptor column = from.getDescriptor();
    do {
      int repetition = from.getCurrentRepetitionLevel();
      int definition = from.getCurrentDefinitionLevel();
      if (definition < column.getMaxDefinitionLevel()) {
        to.writeNull(repetition, definition);
      } else {
        switch (column.getPrimitiveType().getPrimitiveTypeName()) {
          case BOOLEAN -> to.write(from.getBoolean(), repetition, definition);
          case INT32 -> to.write(from.getInteger(), repetition, definition);
          case INT64 -> to.write(from.getLong(), repetition, definition);
          case FLOAT -> to.write(from.getFloat(), repetition, definition);
          case DOUBLE -> to.write(from.getDouble(), repetition, definition);
          default -> to.write(from.getBinary(), repetition, definition);
        }
      }
      from.consume();
    } while (from.getCurrentRepetitionLevel() > 0);
  }

  private static RowRanges rowRanges(List<Range> ranges, long rowCount) {
    // Only pages can make such ranges: every second page is a range, and the others lie between.
    OffsetIndexBuilder pages = OffsetIndexBuilder.getBuilder();
    long end = 0;
    for (Range range : ranges) {
      pages.add(0, range.first() - end);
      pages.add(0, range.length());
      end = range.end();
    }
    pages.add(0, rowCount - end);
    var own = IntStream.range(0, ranges.size()).map(i -> 2 * i + 1).iterator();
    return RowRanges.create(rowCount, own, pages.build());
  }

  /**
   * The pages of a column that overlap some rows, and these rows. Parquet's reader ends when it has
   * asked for the last row; so there are more rows, which no page has, as long as there are pages.
   */
  private static final class ColumnPages implements PageReadStore, PageReader {
    private final PageReadStore store;
    private final PageReader pages;
    private final ColumnDescriptor column;
    private DataPage next;

    ColumnPages(PageReadStore store, ColumnDescriptor column) {
      this.store = store;
      pages = store.getPageReader(column);
      this.column = column;
      next = pages.readPage();
    }

    @Override
    public PageReader getPageReader(ColumnDescriptor column) {
      return this;
    }

    @Override
    public long getRowCount() {
      return store.getRowCount();
    }

    @Override
    public Optional<PrimitiveIterator.OfLong> getRowIndexes() {
      PrimitiveIterator.OfLong rows = store.getRowIndexes().orElseThrow();
      return Optional.of(
          new PrimitiveIterator.OfLong() {
            @Override
            public boolean hasNext() {
              return next != null || rows.hasNext();
            }

            @Override
            public long nextLong() {
              return rows.hasNext() ? rows.nextLong() : Long.MAX_VALUE;
            }
          });
    }

    @Override
    public DictionaryPage readDictionaryPage() {
      return FixedWidthDictionary.lazy(pages.readDictionaryPage());
    }

    @Override
    public long getTotalValueCount() {
      return pages.getTotalValueCount();
    }

    @Override
    public DataPage readPage() {
      DataPage page = next;
      next = pages.readPage();
      if (page instanceof DataPageV2 v2) {
        check(page, v2.getRowCount());
      } else if (column.getMaxRepetitionLevel() == 0) {
        check(page, page.getValueCount());
      } else {
        return withRowsChecked((DataPageV1) page);
      }
      return page;
    }

    /** Only its repetition levels say how many rows such a page has; its bytes can be read once. */
    private DataPage withRowsChecked(DataPageV1 page) {
      BytesInput bytes;
      int rows = 0;
      Encoding encoding = page.getRlEncoding();
      try {
        var allocator = HeapByteBufferAllocator.getInstance();
        bytes = BytesInput.from(page.getBytes().toByteBuffer(allocator, buffer -> {}));
        var levels = encoding.getValuesReader(column, ValuesType.REPETITION_LEVEL);
        levels.initFromPage(page.getValueCount(), bytes.toInputStream());
        for (int i = 0; i < page.getValueCount(); i++) {
          rows += levels.readInteger() == 0 ? 1 : 0;
        }
      } catch (IOException e) {
        throw new ParquetDecodingException("a page of " + column + " that cannot be read", e);
      }
      check(page, rows);
      return new DataPageV1(
          bytes,
          page.getValueCount(),
          page.getUncompressedSize(),
          page.getFirstRowIndex().orElseThrow(),
          rows,
          page.getStatistics(),
          encoding,
          page.getDlEncoding(),
          page.getValueEncoding());
    }

    private static void check(DataPage page, int rows) {
      if (rows != page.getIndexRowCount().orElseThrow()) {
        throw new ParquetDecodingException("an offset index that does not fit its pages");
      }
    }
  }
}
