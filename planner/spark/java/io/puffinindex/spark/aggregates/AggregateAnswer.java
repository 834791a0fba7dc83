package io.puffinindex.spark.aggregates;

import io.puffinindex.spark.IndexPlanner;
import io.puffinindex.spark.Node;
import io.puffinindex.spark.functions.ColumnValues;
import io.puffinindex.spark.scans.View;
import java.io.DataInputStream;
import java.io.IOException;
import java.util.List;
import org.apache.spark.sql.types.DataType;
import org.roaringbitmap.RoaringBitmap;

/**
 * What the index gives for aggregates of the row groups that it drops: {@code
 * planner/spark/requests/aggregates.py}.
 */
public final class AggregateAnswer extends IndexPlanner.Answer {
  /** How long expressions may be evaluated. */
  final int milliseconds;

  /** The number of groups. */
  final int size;

  /** The values of each column to group by. */
  final Values[] keys;

  /** The rows of each group. */
  final long[] rows;

  final Column[] columns;

  AggregateAnswer(
      View view, RoaringBitmap asked, int groups, List<Node> columns, DataInputStream in)
      throws IOException {
    super(view, asked, false, in);
    milliseconds = in.readInt();
    size = in.readInt();
    keys = new Values[groups];
    for (int i = 0; i < keys.length; i++) {
      keys[i] = Values.read(in, size);
    }
    rows = View.longs(in, size);
    this.columns = new Column[columns.size()];
    for (int i = 0; i < this.columns.length; i++) {
      Node wanted = columns.get(i);
      long[] values = View.longs(in, size);
      boolean isAddedUp = wanted.isTrue("sum");
      this.columns[i] =
          new Column(
              values,
              isAddedUp ? ColumnValues.readList("", in) : null,
              isAddedUp ? in.readLong() : 0,
              wanted.isTrue("least") ? Values.read(in, size) : null,
              wanted.isTrue("greatest") ? Values.read(in, size) : null);
    }
  }

  /**
   * What aggregates of a column come to; null what is not wanted.
   *
   * @param values the rows of each group that are not NULL
   * @param magnitude the sum of all magnitudes; as great as a long can be for all that is greater
   */
  @SuppressWarnings("ArrayRecordComponent") // nobody compares it
  record Column(long[] values, ColumnValues sums, long magnitude, Values least, Values greatest) {}

  /** Values, some of which may be NULL. */
  @SuppressWarnings("ArrayRecordComponent") // nobody compares it
  record Values(byte[] valid, ColumnValues list) {
    static Values read(DataInputStream in, int size) throws IOException {
      return new Values(View.bytes(in, size), ColumnValues.readList("", in));
    }

    /** A value as rows of Spark's have it, or null. */
    Object get(int place, DataType type) {
      return valid[place] == 0 ? null : list.value(place, type);
    }
  }
}
