package io.puffinindex.spark.aggregates;

import io.puffinindex.spark.Conditions;
import io.puffinindex.spark.Lists;
import io.puffinindex.spark.View;
import io.puffinindex.spark.functions.ColumnFunction;
import io.puffinindex.spark.functions.Evaluation;
import java.io.DataInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.FileScanTask;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.UnscaledValue;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.Average;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.expressions.aggregate.Partial$;
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum;
import org.apache.spark.sql.catalyst.optimizer.NormalizeNaNAndZero;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.types.AtomicType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.StringType;
import org.roaringbitmap.RoaringBitmap;

/**
 * What a partial aggregate wants of the rows of a scan, and how the parts that the index gives
 * become rows of aggregate buffers.
 *
 * <p>Spark's final aggregate joins these rows with those that Spark itself makes of scanned rows.
 * So a group may have several rows, as the groups of a function of columns have: the index tells
 * the parts of each value of the columns.
 */
public final class AggregateQuestion {
  /** An average of integers is exact as long as doubles add up its magnitudes exactly. */
  private static final long EXACT_DOUBLES = 1L << 53;

  private static final int MOST_DIGITS = 38;
  private static final int MORE_DIGITS_OF_SUMS = 10;
  private static final int MOST_TEXT = 200;

  private final Conditions conditions;

  /**
   * What each row of the scan becomes: for each row that comes of it, maps of attributes to
   * expressions, in order.
   */
  private final List<List<Map<ExprId, Expression>>> projections;

  /** Nodes of the columns that aggregates are of, with what is wanted of them. */
  private final List<Map<String, Object>> columns = new ArrayList<>();

  /** Nodes of the columns to group by, and their types. */
  private final List<Map<String, Object>> groups = new ArrayList<>();

  private final List<DataType> groupTypes = new ArrayList<>();

  /**
   * The places of columns to group by whose two zeros may give different results: the index has one
   * key for both.
   */
  private final SortedSet<Integer> signed = new TreeSet<>();

  /** The places of columns to group by whose values are added up as doubles. */
  private final SortedSet<Integer> addedDoubles = new TreeSet<>();

  /**
   * The expressions to group by, of a row of these columns: a list for each row that comes of a row
   * of the scan.
   */
  private final List<List<Expression>> keys = new ArrayList<>();

  private final List<Buffer> buffers = new ArrayList<>();
  private final List<String> texts = new ArrayList<>();

  /** Whether anything is computed of the values of columns. */
  private boolean computes;

  private boolean isDeclined;

  private AggregateQuestion(
      Conditions conditions, List<List<Map<ExprId, Expression>>> projections) {
    this.conditions = conditions;
    this.projections = projections;
  }

  /**
   * What an aggregate wants; null if the index cannot answer it.
   *
   * @param partial the first of Spark's aggregates, which reads rows
   * @param conditions the whole filter above the scan; takes the columns that aggregates name
   * @param projections what each row of the scan becomes: one row mostly, several for ROLLUP and
   *     CUBE. For each, a list of maps from the IDs of attributes to what they are, from the
   *     aggregate to the scan
   */
  static AggregateQuestion of(
      BaseAggregateExec partial,
      Conditions conditions,
      List<List<Map<ExprId, Expression>>> projections) {
    AggregateQuestion question = new AggregateQuestion(conditions, projections);
    for (List<Map<ExprId, Expression>> projection : projections) {
      List<Expression> keys = new ArrayList<>();
      for (NamedExpression grouping : Lists.from(partial.groupingExpressions())) {
        Expression key = question.key((Expression) grouping, projection);
        if (key == null) {
          return null;
        }
        keys.add(key);
      }
      question.keys.add(keys);
    }
    // Without a column, no rows would still be one group.
    if (question.groups.isEmpty() && !partial.groupingExpressions().isEmpty()) {
      return null;
    }
    return Lists.from(partial.aggregateExpressions()).stream().allMatch(question::addAggregate)
        ? question
        : null;
  }

  /** How many rows of a scan there are. */
  static AggregateQuestion ofRows(Conditions conditions) {
    AggregateQuestion question = new AggregateQuestion(conditions, List.of());
    question.texts.add("count(*)");
    return question;
  }

  /** Say that the answer is of no use. */
  void decline() {
    isDeclined = true;
  }

  /** Read what the index gives, of row groups that it was asked for. */
  public AggregateAnswer read(View view, RoaringBitmap asked, DataInputStream in)
      throws IOException {
    return new AggregateAnswer(view, asked, groups.size(), columns, in);
  }

  /** The content of a request, for Jackson. */
  public Map<String, Object> node(Map<String, Object> deletes) {
    Map<String, Object> node =
        Lists.map(
            "columns", columns,
            "groups", groups,
            "added_doubles", addedDoubles,
            "text", toString(),
            "declined", isDeclined);
    node.putAll(deletes);
    return node;
  }

  @Override
  public String toString() {
    String by = groups.stream().map(ColumnFunction::name).collect(Collectors.joining(", "));
    return (String.join(", ", texts) + (by.isEmpty() ? "" : " by " + by)).trim();
  }

  /** What all questions have in common that get the same rows for a scan. */
  public String key() {
    return columns + " " + groups + " " + keys + " " + buffers + " " + conditions.nodes;
  }

  private Expression key(Expression grouping, List<Map<ExprId, Expression>> projection) {
    Expression expression = grouping instanceof Alias alias ? alias.child() : grouping;
    // Which of several strings that a collation takes as equal stands for the group depends on the
    // order of rows.
    if (expression.dataType().sql().contains("COLLATE")) {
      return null;
    }
    return bound(replaced(expression, projection), true);
  }

  /** An expression of the aggregate's input as one of columns of the scan. */
  private static Expression replaced(
      Expression expression, List<Map<ExprId, Expression>> projection) {
    Expression replaced = expression;
    for (Map<ExprId, Expression> expressions : projection) {
      replaced =
          replaced.transform(
              Lists.change(
                  node ->
                      node instanceof Attribute column ? expressions.get(column.exprId()) : null));
    }
    return replaced;
  }

  /**
   * An expression of the input, of columns of the scan: one for each row that comes of a row of the
   * scan.
   */
  private List<Expression> inputs(Expression expression) {
    return projections.stream().map(projection -> replaced(expression, projection)).toList();
  }

  /**
   * Expressions of columns as expressions of a row of columns to group by; null if the index cannot
   * give the row.
   */
  private List<Expression> bound(List<Expression> expressions, boolean isWhole) {
    List<Expression> bound = new ArrayList<>();
    for (Expression expression : expressions) {
      Expression one = bound(expression, isWhole);
      if (one == null) {
        return null;
      }
      bound.add(one);
    }
    return bound;
  }

  /**
   * An expression of columns as an expression of a row of columns to group by; null if the index
   * cannot give the row.
   *
   * @param isWhole whether both zeros are one value where the expression stands, as in the index
   */
  private Expression bound(Expression expression, boolean isWhole) {
    Map<String, Object> column = conditions.columnOrKey(expression);
    if (column != null) {
      DataType type = expression.dataType();
      int place = groups.indexOf(column);
      if (place < 0) {
        place = groups.size();
        groups.add(column);
        groupTypes.add(type);
      }
      if (!isWhole && isFloating(type)) {
        signed.add(place);
      }
      return new BoundReference(place, type, true);
    }
    computes = true;
    boolean isNormalized = expression instanceof NormalizeNaNAndZero;
    if (expression instanceof AttributeReference
        || !(isNormalized || ColumnFunction.isRepeatable(expression))) {
      return null;
    }
    List<Expression> children = bound(Lists.from(expression.children()), isNormalized);
    if (children == null || children.isEmpty()) {
      return children == null ? null : expression;
    }
    return expression.withNewChildren(Lists.of(children));
  }

  private boolean addAggregate(AggregateExpression aggregate) {
    AggregateFunction function = aggregate.aggregateFunction();
    Class<?> type = function.getClass();
    boolean isEnd = type == Min.class || type == Max.class;
    boolean isAddedUp = type == Sum.class || type == Average.class;
    if (aggregate.mode() != Partial$.MODULE$
        || aggregate.isDistinct()
        || function.children().size() != 1
        || !(isEnd || isAddedUp || type == Count.class)) {
      return false;
    }
    List<Expression> inputs = inputs(function.children().head());
    Expression child = inputs.get(0);
    DataType own = child.dataType();
    // Strings of other collations are equal without being the same.
    boolean hasEnds =
        own instanceof StringType ? own.equals(DataTypes.StringType) : own instanceof AtomicType;
    List<DataType> types =
        Lists.from(function.aggBufferAttributes()).stream()
            .map(AttributeReference::dataType)
            .toList();
    if ((isAddedUp && !(own instanceof NumericType))
        || (isEnd && !hasEnds)
        || !types.equals(bufferTypes(type, own))) {
      return false;
    }
    // What decides whether a row counts is known of all rows of a group, if its columns are among
    // those to group by.
    List<Expression> conditions = null;
    if (aggregate.filter().isDefined()) {
      conditions = bound(inputs(aggregate.filter().get()), false);
      if (conditions == null) {
        return false;
      }
    }
    boolean isSame = Collections.frequency(inputs, child) == inputs.size();
    if (type == Count.class && child instanceof Literal literal && isSame) {
      texts.add("count(*)");
      return literal.value() != null && add("count", -1, types, conditions, null);
    }
    // Spark adds small decimals up as integers.
    boolean isUnscaled = child instanceof UnscaledValue;
    Expression plain = child instanceof UnscaledValue unscaled ? unscaled.child() : child;
    Map<String, Object> node = isSame ? this.conditions.columnOrKey(plain) : null;
    if (node == null || (isAddedUp && isFloating(own)) || (isUnscaled && !isAddedUp)) {
      return addComputed(function, inputs, types, conditions);
    }
    int column = column(node);
    texts.add(function.prettyName() + "(" + ColumnFunction.name(node) + ")");
    if (type == Count.class) {
      return add("count", column, types, conditions, null);
    }
    String what = isAddedUp ? "sum" : type == Min.class ? "least" : "greatest";
    columns.get(column).put(what, true);
    if (type == Average.class && !(own instanceof DecimalType)) {
      columns.get(column).put("double", true);
    }
    return add(what, column, types, conditions, null);
  }

  /** The types of the buffer that a function has for values of a type. */
  private static List<DataType> bufferTypes(Class<?> type, DataType own) {
    if (type == Count.class) {
      return List.of(DataTypes.LongType);
    }
    if (type == Min.class || type == Max.class) {
      return List.of(own);
    }
    if (own instanceof DecimalType decimal) {
      int precision = Math.min(MOST_DIGITS, decimal.precision() + MORE_DIGITS_OF_SUMS);
      DataType second = type == Sum.class ? DataTypes.BooleanType : DataTypes.LongType;
      return List.of(new DecimalType(precision, decimal.scale()), second);
    }
    return type == Average.class
        ? List.of(DataTypes.DoubleType, DataTypes.LongType)
        : List.of(isFloating(own) ? DataTypes.DoubleType : DataTypes.LongType);
  }

  /**
   * Add an aggregate of an expression: the index tells how many rows have each value of its
   * columns.
   */
  private boolean addComputed(
      AggregateFunction function,
      List<Expression> inputs,
      List<DataType> types,
      List<Expression> conditions) {
    boolean isAddedUp = function instanceof Sum || function instanceof Average;
    // A sum is the same for both zeros.
    List<Expression> values = bound(inputs, isAddedUp);
    if (values == null) {
      return false;
    }
    String text = inputs.get(0).toString().replaceAll("#\\d+L?", "");
    texts.add(
        function.prettyName()
            + "("
            + (text.length() > MOST_TEXT ? text.substring(0, MOST_TEXT) : text)
            + ")");
    if (function instanceof Count) {
      List<Expression> known = new ArrayList<>();
      for (int i = 0; i < values.size(); i++) {
        Expression isKnown = new IsNotNull(values.get(i));
        known.add(conditions == null ? isKnown : new And(conditions.get(i), isKnown));
      }
      return add("count", -1, types, known, null);
    }
    for (Expression value : values) {
      if (isAddedUp && isFloating(value.dataType()) && value instanceof BoundReference reference) {
        addedDoubles.add(reference.ordinal());
      }
    }
    return add("computed", -1, types, conditions, new ComputedValues(isAddedUp, types, values));
  }

  private static boolean isFloating(DataType type) {
    return type instanceof DoubleType || type instanceof FloatType;
  }

  private boolean add(
      String what,
      int column,
      List<DataType> types,
      List<Expression> conditions,
      ComputedValues computed) {
    computes |= conditions != null || computed != null;
    return buffers.add(new Buffer(what, column, types, conditions, computed));
  }

  private int column(Map<String, Object> node) {
    for (int i = 0; i < columns.size(); i++) {
      if (columns.get(i).get("column").equals(node)) {
        return i;
      }
    }
    columns.add(
        Lists.map(
            "column", node, "sum", false, "double", false, "least", false, "greatest", false));
    return columns.size() - 1;
  }

  /**
   * Whether doubles add up averages of integers exactly, whatever the rows that are still to be
   * read have.
   */
  private boolean isExact(AggregateAnswer answer, List<FileScanTask> unread) {
    for (Buffer buffer : buffers) {
      if (buffer.computed != null && buffer.computed.needsEveryRow() && !unread.isEmpty()) {
        return false;
      }
      if (buffer.column >= 0 && buffer.type() instanceof DoubleType && buffer.types.size() > 1) {
        Map<?, ?> node = (Map<?, ?>) columns.get(buffer.column).get("column");
        double most = (double) answer.magnitudes[buffer.column] + magnitude(node, unread);
        if (most > EXACT_DOUBLES) {
          return false;
        }
      }
    }
    return true;
  }

  /**
   * An upper bound of the sum of magnitudes of a column in the data files of some tasks; decimals
   * unscaled.
   */
  private static double magnitude(Map<?, ?> column, List<FileScanTask> tasks) {
    double sum = 0;
    Integer field = (Integer) column.get("field");
    String type = (String) column.get("type");
    double mostOfType = type.equals("int") ? -(double) Integer.MIN_VALUE : -(double) Long.MIN_VALUE;
    if (type.startsWith("decimal(")) {
      mostOfType =
          Math.pow(10, Integer.parseInt(type.substring("decimal(".length(), type.indexOf(','))));
    }
    for (FileScanTask task : tasks) {
      DataFile file = task.file();
      double most = mostOfType;
      ByteBuffer low = file.lowerBounds() == null ? null : file.lowerBounds().get(field);
      ByteBuffer high = file.upperBounds() == null ? null : file.upperBounds().get(field);
      if (low != null
          && high != null
          && !column.containsKey("key")
          && (type.equals("int") || type.equals("long"))) {
        most = Math.max(Math.abs(number(low)), Math.abs(number(high)));
      }
      sum += most * file.recordCount();
    }
    return sum;
  }

  /** A bound of an integer, which a file may have as an int of 32 bits. */
  private static double number(ByteBuffer bound) {
    ByteBuffer bytes = bound.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    return bytes.remaining() == Integer.BYTES ? bytes.getInt() : bytes.getLong();
  }

  /**
   * Rows of the keys of each group and the buffers of all aggregates.
   *
   * @param unread the tasks of the rows that are still to be read
   * @return null if Spark has to read all rows: an expression fails for a value, or a sum might not
   *     be exact
   */
  List<InternalRow> rows(AggregateAnswer answer, List<FileScanTask> unread) {
    if (!isExact(answer, unread)) {
      return null;
    }
    if (!computes) {
      return everyRow(answer, values -> {});
    }
    Evaluation<List<InternalRow>> evaluation =
        new Evaluation<>() {
          @Override
          protected List<InternalRow> evaluate() {
            return everyRow(
                answer,
                values -> {
                  next();
                  for (int i = 0; i < values.numFields(); i++) {
                    if (isLong(values.genericGet(i))) {
                      throw new ArithmeticException("a value that is too long to be tried");
                    }
                  }
                });
          }
        };
    return evaluation.result(System.nanoTime() + answer.milliseconds * 1000000L).orElse(null);
  }

  /**
   * @param begin is told the values of each group before anything is computed of them
   */
  private List<InternalRow> everyRow(AggregateAnswer answer, Consumer<GenericInternalRow> begin) {
    List<InternalRow> rows = new ArrayList<>(answer.size);
    List<ComputedValues> computed =
        buffers.stream().map(Buffer::computed).filter(Objects::nonNull).toList();
    computed.forEach(ComputedValues::begin);
    GenericInternalRow values = new GenericInternalRow(groups.size());
    for (int group = 0; group < answer.size; group++) {
      for (int i = 0; i < groups.size(); i++) {
        values.update(i, answer.keys[i].get(group, groupTypes.get(i)));
      }
      begin.accept(values);
      List<List<Object>> own = rowsOf(answer, group, values);
      own.forEach(row -> rows.add(new GenericInternalRow(row.toArray())));
      checkZeros(answer, group, values, own, List.copyOf(signed));
    }
    computed.forEach(ComputedValues::end);
    return rows;
  }

  /** The rows of a group, each a list: one for each row that comes of a row of the scan. */
  private List<List<Object>> rowsOf(AggregateAnswer answer, int group, GenericInternalRow values) {
    List<List<Object>> rows = new ArrayList<>();
    for (int projection = 0; projection < keys.size(); projection++) {
      List<Object> row = new ArrayList<>();
      for (Expression key : keys.get(projection)) {
        row.add(key.eval(values));
      }
      for (Buffer buffer : buffers) {
        boolean counts =
            buffer.conditions == null
                || Boolean.TRUE.equals(buffer.conditions.get(projection).eval(values));
        if (buffer.computed == null) {
          buffer.add(answer, counts ? group : -1, row);
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
      AggregateAnswer answer,
      int group,
      GenericInternalRow values,
      List<List<Object>> expected,
      List<Integer> places) {
    if (places.isEmpty()) {
      return;
    }
    List<Integer> others = places.subList(1, places.size());
    checkZeros(answer, group, values, expected, others);
    Object value = values.genericGet(places.get(0));
    Object opposite = ColumnFunction.opposite(value);
    if (opposite != null) {
      values.update(places.get(0), opposite);
      if (!rowsOf(answer, group, values).equals(expected)) {
        throw new ArithmeticException("a result that depends on the sign of a zero");
      }
      checkZeros(answer, group, values, expected, others);
      values.update(places.get(0), value);
    }
  }

  /**
   * An aggregate's buffer.
   *
   * @param column the place of the column that the aggregate is of; -1 for none
   * @param conditions which rows count, of a row of columns to group by: one for each row that
   *     comes of a row of the scan, or null
   * @param computed the values that are computed of such a row, or null
   */
  private record Buffer(
      String what,
      int column,
      List<DataType> types,
      List<Expression> conditions,
      ComputedValues computed) {
    DataType type() {
      return types.get(0);
    }

    /** Add the values of a group to a row; -1 stands for no rows at all. */
    void add(AggregateAnswer answer, int group, List<Object> row) {
      long count = group < 0 ? 0 : column < 0 ? answer.rows[group] : answer.values[column][group];
      if (what.equals("count")) {
        row.add(count);
      } else if (what.equals("sum")) {
        ComputedValues.addSum(count == 0 ? null : sum(answer, group), count, types, row);
      } else if (count == 0) {
        row.add(null);
      } else {
        AggregateAnswer.Values[] ends = what.equals("least") ? answer.least : answer.greatest;
        row.add(ends[column].get(group, type()));
      }
    }

    private Object sum(AggregateAnswer answer, int group) {
      return type() instanceof DoubleType
          ? (Object) ((Long) answer.sums[column].value(group, DataTypes.LongType)).doubleValue()
          : answer.sums[column].value(group, type());
    }
  }
}
