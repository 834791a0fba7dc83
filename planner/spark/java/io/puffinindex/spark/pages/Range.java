package io.puffinindex.spark.pages;

import java.util.ArrayList;
import java.util.List;
import org.roaringbitmap.RoaringBitmap;

/** Bytes of a file, or rows of a row group, from a first one to before an end. */
record Range(long first, long end) {
  long length() {
    return end - first;
  }

  /** As many rows as some ranges have together. */
  static Range first(List<Range> ranges) {
    return new Range(0, ranges.stream().mapToLong(Range::length).sum());
  }

  /** The rows of a set, those in a row as one range. */
  static List<Range> of(RoaringBitmap rows) {
    List<Range> ranges = new ArrayList<>();
    long first = 0;
    long end = -1;
    for (var all = rows.getIntIterator(); all.hasNext(); ) {
      long row = Integer.toUnsignedLong(all.next());
      if (row != end) {
        if (end > first) {
          ranges.add(new Range(first, end));
        }
        first = row;
      }
      end = row + 1;
    }
    if (end > first) {
      ranges.add(new Range(first, end));
    }
    return ranges;
  }
}
