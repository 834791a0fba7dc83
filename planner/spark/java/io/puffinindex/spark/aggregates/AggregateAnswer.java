package io.puffinindex.spark.aggregates;

import io.puffinindex.spark.Node;
import io.puffinindex.spark.functions.ColumnValues;
import io.puffinindex.spark.scans.View;
import java.io.DataInputStream;
import java.io.IOException;
import java.util.List;
import org.apache.iceberg.FileScanTask;
import org.apache.spark.sql.types.DataType;
import org.roaringbitmap.RoaringBitmap;

/** What the index gives for aggregates: {@code planner/spark/requests/aggregates.py}. */
public final class AggregateAnswer {
  private final View view;

  /** What the job's description says, may be empty. */
  public final String note;

  /** How long expressions may be evaluated. */
  public final int milliseconds;

  /** The row groups that need no scan. */
  public final RoaringBitmap answered = new RoaringBitmap();

  /** The number of groups. */
  public final int size;

  /** The values of each column to group by. */
  final Values[] keys;

  /** The rows of each group. */
  final long[] rows;

  /** By column, the rows of each group that are not NULL. */
  final long[][] values;

  /** By column, the sum of each group's values; null where no sum is wanted. */
  final ColumnValues[] sums;

  /** By column, the sum of all magnitudes; as great as a long can be for all that is greater. */
  final long[] magnitudes;

  /** By column, the least value of each group; null where it is not wanted. */
  final Values[] least;

  /** By column, the greatest value of each group; null where it is not wanted. */
  final Values[] greatest;

  AggregateAnswer(
      View view, RoaringBitmap asked, int groups, List<Node> columns, DataInputStream in)
      throws IOException {
    this.view = view;
    note = View.text(in, in.readUnsignedShort());
    milliseconds = in.readInt();
    int length = in.readInt();
    int before = in.available();
    answered.deserialize(in);
    if (before - in.available() != length) {
      throw new IllegalStateException(
          "an answer whose row groups take another length than it says");
    }
    answered.and(asked);
    size = in.readInt();
    keys = new Values[groups];
    for (int i = 0; i < keys.length; i++) {
      keys[i] = Values.read(in, size);
    }
    rows = ColumnValues.readLongs(in, size);
    values = new long[columns.size()][];
    sums = new ColumnValues[columns.size()];
    magnitudes = new long[columns.size()];
    least = new Values[columns.size()];
    greatest = new Values[columns.size()];
    for (int i = 0; i < values.length; i++) {
      Node column = columns.get(i);
      values[i] = ColumnValues.readLongs(in, size);
      if (column.isTrue("sum")) {
        sums[i] = ColumnValues.readList("", in);
        magnitudes[i] = in.readLong();
      }
      least[i] = column.isTrue("least") ? Values.read(in, size) : null;
      greatest[i] = column.isTrue("greatest") ? Values.read(in, size) : null;
    }
    if (in.read() >= 0) {
      throw new IllegalStateException("an answer with bytes after its end");
    }
  }

  /** The tasks that are still to be read. */
  List<FileScanTask> unread(List<FileScanTask> tasks) {
    return view.without(tasks, answered, false);
  }

  /** Values, some of which may be NULL. */
  @SuppressWarnings("ArrayRecordComponent") // nobody compares it
  record Values(byte[] valid, ColumnValues list) {
    static Values read(DataInputStream in, int size) throws IOException {
      byte[] valid = new byte[size];
      in.readFully(valid);
      return new Values(valid, ColumnValues.readList("", in));
    }

    /** A value as rows of Spark's have it, or null. */
    Object get(int place, DataType type) {
      return valid[place] == 0 ? null : list.value(place, type);
    }
  }
}
