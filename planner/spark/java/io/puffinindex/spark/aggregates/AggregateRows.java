package io.puffinindex.spark.aggregates;

import io.puffinindex.spark.Node;
import io.puffinindex.spark.functions.ColumnFunction;
import io.puffinindex.spark.functions.ColumnValues;
import io.puffinindex.spark.functions.Evaluation;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DoubleType;

/** The rows of aggregate buffers that an answer to a question gives. */
record AggregateRows(AggregateQuestion question, AggregateAnswer answer) {
  /** Whether doubles add up averages of integers exactly, whatever the unread rows have. */
  private boolean isExact(List<FileScanTask> unread) {
    for (Buffer buffer : question.buffers) {
      if (buffer.computed != null && buffer.computed.needsEveryRow() && !unread.isEmpty()) {
        return false;
      }
      if (buffer.column >= 0 && buffer.type() instanceof DoubleType && buffer.types.size() > 1) {
        Node node = (Node) question.columns.get(buffer.column).get("column");
        double most = (double) answer.columns[buffer.column].magnitude() + magnitude(node, unread);
        if (most > ComputedValues.EXACT_DOUBLES) {
          return false;
        }
      }
    }
    return true;
  }

  /** At most the sum of magnitudes of a column in the data files of tasks; decimals unscaled. */
  private static double magnitude(Node column, List<FileScanTask> tasks) {
    double sum = 0;
    Integer field = column.field();
    String type = column.type();
    boolean isInteger = type.equals("int") || type.equals("long");
    double mostOfType =
        Types.fromPrimitiveString(type) instanceof Types.DecimalType decimal
            ? Math.pow(10, decimal.precision())
            : -(double) (type.equals("int") ? Integer.MIN_VALUE : Long.MIN_VALUE);
    for (FileScanTask task : tasks) {
      var file = task.file();
      double most = mostOfType;
      ByteBuffer low = file.lowerBounds() == null ? null : file.lowerBounds().get(field);
      ByteBuffer high = file.upperBounds() == null ? null : file.upperBounds().get(field);
      if (low != null && high != null && isInteger && !column.containsKey("key")) {
        most = Math.max(magnitude(type, low), magnitude(type, high));
      }
      sum += most * file.recordCount();
    }
    return sum;
  }

  private static double magnitude(String type, ByteBuffer bound) {
    Number number = Conversions.fromByteBuffer(Types.fromPrimitiveString(type), bound);
    return Math.abs(number.doubleValue());
  }

  /**
   * The keys of each group and the buffers of all aggregates; null if Spark has to read all rows:
   * an expression fails for a value, or a sum might not be exact.
   */
  List<InternalRow> rows(List<FileScanTask> unread) {
    if (!isExact(unread)) {
      return null;
    }
    if (!question.computes()) {
      return everyRow(values -> {});
    }
    Evaluation<List<InternalRow>> evaluation =
        new Evaluation<>(
            next ->
                everyRow(
                    values -> {
                      next.run();
                      if (Stream.of(values.values()).anyMatch(Evaluation::isLong)) {
                        throw new ArithmeticException("a value that is too long to be tried");
                      }
                    }));
    return evaluation.result(System.nanoTime() + answer.milliseconds * 1000000L).orElse(null);
  }

  private List<InternalRow> everyRow(Consumer<GenericInternalRow> begin) {
    List<InternalRow> rows = new ArrayList<>(answer.size);
    List<ComputedValues> computed =
        question.buffers.stream().map(Buffer::computed).filter(Objects::nonNull).toList();
    computed.forEach(ComputedValues::begin);
    GenericInternalRow values = new GenericInternalRow(question.groups.size());
    for (int group = 0; group < answer.size; group++) {
      for (int i = 0; i < question.groups.size(); i++) {
        values.update(i, answer.keys[i].get(group, question.groupTypes.get(i)));
      }
      begin.accept(values);
      List<List<Object>> own = rowsOf(group, values);
      own.forEach(row -> rows.add(new GenericInternalRow(row.toArray())));
      checkZeros(group, values, own, List.copyOf(question.signed));
    }
    computed.forEach(ComputedValues::end);
    return rows;
  }

  /** The rows of a group, each a list: one for each row that comes of a row of the scan. */
  private List<List<Object>> rowsOf(int group, GenericInternalRow values) {
    List<List<Object>> rows = new ArrayList<>();
    for (int projection = 0; projection < question.keys.size(); projection++) {
      List<Object> row = new ArrayList<>();
      for (Expression key : question.keys.get(projection)) {
        row.add(key.eval(values));
      }
      for (Buffer buffer : question.buffers) {
        boolean counts =
            buffer.conditions == null
                || Boolean.TRUE.equals(buffer.conditions.get(projection).eval(values));
        if (buffer.computed == null) {
          add(buffer, counts ? group : -1, row);
        } else {
          buffer.computed.add(counts ? answer.rows[group] : 0, projection, values, row);
        }
      }
      rows.add(row);
    }
    return rows;
  }

  /** Check that a group has the same rows, whatever the signs of zeros at some places. */
  private void checkZeros(
      int group, GenericInternalRow values, List<List<Object>> expected, List<Integer> places) {
    if (places.isEmpty()) {
      return;
    }
    List<Integer> others = places.subList(1, places.size());
    checkZeros(group, values, expected, others);
    Object value = values.genericGet(places.get(0));
    Object opposite = ColumnFunction.opposite(value);
    if (opposite != null) {
      values.update(places.get(0), opposite);
      if (!rowsOf(group, values).equals(expected)) {
        throw new ArithmeticException("a result that depends on the sign of a zero");
      }
      checkZeros(group, values, expected, others);
      values.update(places.get(0), value);
    }
  }

  /** Add the values of a group to a row; -1 stands for no rows at all. */
  private void add(Buffer buffer, int group, List<Object> row) {
    AggregateAnswer.Column column = buffer.column < 0 ? null : answer.columns[buffer.column];
    long count = group < 0 ? 0 : (column == null ? answer.rows : column.values())[group];
    if (buffer.what.equals("count")) {
      row.add(count);
    } else if (buffer.what.equals("sum")) {
      Object sum = count == 0 ? null : sum(column.sums(), group, buffer.type());
      ComputedValues.addSum(sum, count, buffer.types, row);
    } else if (count == 0) {
      row.add(null);
    } else {
      AggregateAnswer.Values ends =
          buffer.what.equals("least") ? column.least() : column.greatest();
      row.add(ends.get(group, buffer.type()));
    }
  }

  private static Object sum(ColumnValues sums, int group, DataType type) {
    return type instanceof DoubleType
        ? (Object) ((Long) sums.value(group, DataTypes.LongType)).doubleValue()
        : sums.value(group, type);
  }

  /**
   * An aggregate's buffer.
   *
   * @param column the place of the column that the aggregate is of; -1 for none
   * @param conditions which rows count, of a row of columns to group by: one for each row that
   *     comes of a row of the scan, or null
   * @param computed the values that are computed of such a row, or null
   */
  record Buffer(
      String what,
      int column,
      List<DataType> types,
      List<Expression> conditions,
      ComputedValues computed) {
    DataType type() {
      return types.get(0);
    }
  }
}
