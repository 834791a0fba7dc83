package io.puffinindex.spark.pages;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.iceberg.FileScanTask;
import org.roaringbitmap.RoaringBitmap;

/**
 * The rows that a query wants of a row group.
 *
 * @param first the first byte of the range of bytes by which readers read this row group alone
 * @param end the end of this range
 * @param rows a serialized roaring bitmap of rows, counted from 0 in the row group
 */
@SuppressWarnings("ArrayRecordComponent") // nobody compares it
public record WantedRowGroup(long first, long end, byte[] rows) implements Serializable {
  /** Whether a task of the data file may read the row group. */
  boolean overlaps(FileScanTask task) {
    return first < task.start() + task.length() && task.start() < end;
  }

  List<Range> ranges() {
    RoaringBitmap all = new RoaringBitmap();
    try {
      all.deserialize(ByteBuffer.wrap(rows));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return Range.of(all);
  }
}
