package io.puffinindex.spark.pages;

import java.util.ArrayList;
import java.util.List;
import org.roaringbitmap.RoaringBitmap;

/** Bytes of a file, or rows of a row group, from a first one to before an end. */
record Range(long first, long end) {
  long length() {
    return end - first;
  }

  /** A range from 0 that is as long as some ranges are together. */
  static Range together(List<Range> ranges) {
    return new Range(0, ranges.stream().mapToLong(Range::length).sum());
  }

  /** Ranges, ordered by their first, with those joined that lie no further apart than a gap. */
  static List<Range> joined(List<Range> ranges, long gap) {
    List<Range> joined = new ArrayList<>();
    for (Range range : ranges) {
      int last = joined.size() - 1;
      if (last >= 0 && range.first <= joined.get(last).end + gap) {
        joined.set(
            last, new Range(joined.get(last).first, Math.max(joined.get(last).end, range.end)));
      } else {
        joined.add(range);
      }
    }
    return joined;
  }

  /** The rows of a set, those in a row as one range. */
  static List<Range> of(RoaringBitmap rows) {
    List<Range> ranges = new ArrayList<>();
    long end = 0;
    for (long first = rows.nextValue(0); first >= 0; first = rows.nextValue((int) end)) {
      end = rows.nextAbsentValue((int) first);
      ranges.add(new Range(first, end));
    }
    return ranges;
  }
}
