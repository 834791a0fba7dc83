package io.puffinindex.spark;

import java.io.DataInputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.FileScanTask;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
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
 * What a partial aggregate wants of the rows of a scan, and how the parts that the index gives become rows of aggregate
 * buffers.
 *
 * <p>Spark's final aggregate joins these rows with those that Spark itself makes of scanned rows. So a group may have
 * several rows, as the groups of a function of columns have: the index tells the parts of each value of the columns.
 */
public class AggregateQuestion {
  /** An average of integers is exact as long as doubles add up its magnitudes exactly. */
  private static final long EXACT_DOUBLES = 1L << 53;

  private static final int MOST_DIGITS = 38;
  private static final int MORE_DIGITS_OF_SUMS = 10;
  private static final int MOST_TEXT = 200;

  private final Conditions conditions;
  /** What each row of the scan becomes: for each row that comes of it, maps of attributes to expressions, in order. */
  private final List<List<Map>> projections;
  /** Nodes of the columns that aggregates are of, with what is wanted of them. */
  private final List columns = new ArrayList();
  /** Nodes of the columns to group by, and their types. */
  private final List<Map<String, Object>> groups = new ArrayList();
  private final List groupTypes = new ArrayList();
  /** The places of columns to group by whose two zeros may give different results: the index has one key for both. */
  private final Set signed = new TreeSet();
  /** The places of columns to group by whose values are added up as doubles. */
  private final Set addedDoubles = new TreeSet();
  /** The expressions to group by, of a row of these columns: a list for each row that comes of a row of the scan. */
  private final List keys = new ArrayList();
  private final List<Buffer> buffers = new ArrayList();
  /** The buffers as text. */
  private final List parts = new ArrayList();
  private final List texts = new ArrayList();

  /** Whether anything is computed of the values of columns. */
  private boolean computes;

  private boolean isDeclined;

  private AggregateQuestion(Conditions conditions, List<List<Map>> projections) {
    this.conditions = conditions;
    this.projections = projections;
  }

  /**
   * @param partial the first of Spark's aggregates, which reads rows
   * @param conditions the whole filter above the scan; takes the columns that aggregates name
   * @param projections what each row of the scan becomes: one row mostly, several for ROLLUP and CUBE. For each, a list
   *     of maps from the IDs of attributes to what they are, from the aggregate to the scan
   * @return null if the index cannot answer
   */
  public static AggregateQuestion of(BaseAggregateExec partial, Conditions conditions, List<List<Map>> projections) {
    AggregateQuestion question = new AggregateQuestion(conditions, projections);
    for (List<Map> projection : projections) {
      List keys = new ArrayList();
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
    for (AggregateExpression aggregate : Lists.from(partial.aggregateExpressions())) {
      if (!question.addAggregate(aggregate)) {
        return null;
      }
    }
    return question;
  }

  /** How many rows of a scan there are. */
  public static AggregateQuestion ofRows(Conditions conditions) {
    AggregateQuestion question = new AggregateQuestion(conditions, Collections.EMPTY_LIST);
    question.texts.add("count(*)");
    return question;
  }

  /** Say that the answer is of no use. */
  public void decline() {
    isDeclined = true;
  }

  /** Read what the index gives, of row groups that it was asked for. */
  public AggregateAnswer read(View view, RoaringBitmap asked, DataInputStream in) throws Exception {
    return new AggregateAnswer(view, asked, groups.size(), columns, in);
  }

  /** The content of a request, for Jackson. */
  public Map<String, Object> node(Map deletes) {
    Map<String, Object> node = Lists.map(
        "columns", columns,
        "groups", groups,
        "added_doubles", addedDoubles,
        "text", toString(),
        "declined", isDeclined);
    node.putAll(deletes);
    return node;
  }

  public String toString() {
    List names = new ArrayList();
    for (Map<String, Object> group : groups) {
      names.add(ColumnFunction.name(group));
    }
    String by = names.isEmpty() ? "" : "by " + String.join(", ", names);
    return (String.join(", ", texts) + " " + by).trim();
  }

  /** What all questions have in common that get the same rows for a scan. */
  public String key() {
    return columns + " " + groups + " " + keys + " " + parts + " " + conditions.nodes;
  }

  private Expression key(Expression grouping, List<Map> projection) {
    Expression expression = grouping instanceof Alias ? ((Alias) grouping).child() : grouping;
    // Which of several strings that a collation takes as equal stands for the group depends on the order of rows.
    if (expression.dataType().sql().contains("COLLATE")) {
      return null;
    }
    return bound(replaced(expression, projection), true);
  }

  /** An expression of the aggregate's input as one of columns of the scan. */
  private static Expression replaced(Expression expression, List<Map> projection) {
    Expression replaced = expression;
    for (Map expressions : projection) {
      replaced = (Expression) replaced.transform(new Change(new ReplaceAttributes(expressions)));
    }
    return replaced;
  }

  /** An expression of the input, of columns of the scan: one for each row that comes of a row of the scan. */
  private List inputs(Expression expression) {
    List inputs = new ArrayList();
    for (List<Map> projection : projections) {
      inputs.add(replaced(expression, projection));
    }
    return inputs;
  }

  /** Expressions of columns as expressions of a row of columns to group by; null if the index cannot give the row. */
  private List bound(List<Expression> expressions, boolean isWhole) {
    List bound = new ArrayList();
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
   * An expression of columns as an expression of a row of columns to group by; null if the index cannot give the row.
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
        signed.add(Integer.valueOf(place));
      }
      return new BoundReference(place, type, true);
    }
    computes = true;
    boolean isNormalized = expression instanceof NormalizeNaNAndZero;
    if (expression instanceof AttributeReference || !(isNormalized || ColumnFunction.isRepeatable(expression))) {
      return null;
    }
    List children = new ArrayList();
    for (Expression child : Lists.from(expression.children())) {
      Expression boundChild = bound(child, isNormalized);
      if (boundChild == null) {
        return null;
      }
      children.add(boundChild);
    }
    return children.isEmpty() ? expression : (Expression) expression.withNewChildren(Lists.of(children));
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
    List inputs = inputs((Expression) function.children().head());
    Expression child = (Expression) inputs.get(0);
    DataType own = child.dataType();
    // Strings of other collations are equal without being the same.
    boolean hasEnds = own instanceof StringType ? own.equals(DataTypes.StringType) : own instanceof AtomicType;
    List types = new ArrayList();
    for (AttributeReference attribute : Lists.from(function.aggBufferAttributes())) {
      types.add(attribute.dataType());
    }
    if ((isAddedUp && !(own instanceof NumericType))
        || (isEnd && !hasEnds)
        || !types.equals(bufferTypes(type, own))) {
      return false;
    }
    // What decides whether a row counts is known of all rows of a group, if its columns are among those to group by.
    List conditions = null;
    if (aggregate.filter().isDefined()) {
      conditions = bound(inputs((Expression) aggregate.filter().get()), false);
      if (conditions == null) {
        return false;
      }
    }
    boolean isSame = Collections.frequency(inputs, child) == inputs.size();
    if (type == Count.class && child instanceof Literal && isSame) {
      texts.add("count(*)");
      return ((Literal) child).value() != null && add("count", -1, types, conditions, null);
    }
    // Spark adds small decimals up as integers.
    boolean isUnscaled = child instanceof UnscaledValue;
    Expression plain = isUnscaled ? ((UnscaledValue) child).child() : child;
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
    want(column, what);
    if (type == Average.class && !(own instanceof DecimalType)) {
      want(column, "double");
    }
    return add(what, column, types, conditions, null);
  }

  /** The types of the buffer that a function has for values of a type. */
  private static List bufferTypes(Class<?> type, DataType own) {
    if (type == Count.class) {
      return Arrays.asList(DataTypes.LongType);
    }
    if (type == Min.class || type == Max.class) {
      return Arrays.asList(own);
    }
    if (own instanceof DecimalType) {
      int precision = Math.min(MOST_DIGITS, ((DecimalType) own).precision() + MORE_DIGITS_OF_SUMS);
      DataType second = type == Sum.class ? DataTypes.BooleanType : DataTypes.LongType;
      return Arrays.asList(new DecimalType(precision, ((DecimalType) own).scale()), second);
    }
    return type == Average.class
        ? Arrays.asList(DataTypes.DoubleType, DataTypes.LongType)
        : Arrays.asList(isFloating(own) ? DataTypes.DoubleType : DataTypes.LongType);
  }

  /** Add an aggregate of an expression: the index tells how many rows have each value of its columns. */
  private boolean addComputed(AggregateFunction function, List inputs, List types, List conditions) {
    boolean isAddedUp = function instanceof Sum || function instanceof Average;
    // A sum is the same for both zeros.
    List<Expression> values = bound(inputs, isAddedUp);
    if (values == null) {
      return false;
    }
    String text = inputs.get(0).toString().replaceAll("#\\d+L?", "");
    texts.add(function.prettyName() + "(" + (text.length() > MOST_TEXT ? text.substring(0, MOST_TEXT) : text) + ")");
    if (function instanceof Count) {
      List known = new ArrayList();
      for (int i = 0; i < values.size(); i++) {
        Expression isKnown = new IsNotNull((Expression) values.get(i));
        known.add(conditions == null ? isKnown : new And((Expression) conditions.get(i), isKnown));
      }
      return add("count", -1, types, known, null);
    }
    for (Expression value : values) {
      if (isAddedUp && isFloating(value.dataType()) && value instanceof BoundReference) {
        addedDoubles.add(((BoundReference) value).ordinal());
      }
    }
    return add("computed", -1, types, conditions, new ComputedValues(isAddedUp, types, values));
  }

  private static boolean isFloating(DataType type) {
    return type instanceof DoubleType || type instanceof FloatType;
  }

  private boolean add(String what, int column, List types, List conditions, ComputedValues computed) {
    computes |= conditions != null || computed != null;
    parts.add(what + " " + column + " " + types + " " + conditions + " " + computed);
    return buffers.add(new Buffer(what, column, types, conditions, computed));
  }

  private int column(Map<String, Object> node) {
    for (int i = 0; i < columns.size(); i++) {
      if (((Map) columns.get(i)).get("column").equals(node)) {
        return i;
      }
    }
    columns.add(Lists.map("column", node, "sum", false, "double", false, "least", false, "greatest", false));
    return columns.size() - 1;
  }

  private void want(int column, String what) {
    ((Map) columns.get(column)).put(what, Boolean.TRUE);
  }

  /** Whether doubles add up averages of integers exactly, whatever the rows that are still to be read have. */
  private boolean isExact(AggregateAnswer answer, List unread) throws Exception {
    for (Buffer buffer : buffers) {
      if (buffer.computed != null && buffer.computed.needsEveryRow() && !unread.isEmpty()) {
        return false;
      }
      if (buffer.column >= 0 && buffer.type instanceof DoubleType && buffer.types.size() > 1) {
        Map<String, Object> node = (Map) ((Map) columns.get(buffer.column)).get("column");
        double most = (double) answer.magnitudes[buffer.column] + magnitude(node, unread);
        if (most > EXACT_DOUBLES) {
          return false;
        }
      }
    }
    return true;
  }

  /** An upper bound of the sum of magnitudes of a column in the data files of some tasks; decimals unscaled. */
  private static double magnitude(Map<String, Object> column, List<FileScanTask> tasks) {
    double sum = 0;
    Integer field = (Integer) column.get("field");
    String type = (String) column.get("type");
    double mostOfType = type.equals("int") ? -(double) Integer.MIN_VALUE : -(double) Long.MIN_VALUE;
    if (type.startsWith("decimal(")) {
      mostOfType = Math.pow(10, Integer.parseInt(type.substring("decimal(".length(), type.indexOf(','))));
    }
    for (FileScanTask task : tasks) {
      DataFile file = (DataFile) task.file();
      double most = mostOfType;
      ByteBuffer low = file.lowerBounds() == null ? null : (ByteBuffer) file.lowerBounds().get(field);
      ByteBuffer high = file.upperBounds() == null ? null : (ByteBuffer) file.upperBounds().get(field);
      if (low != null && high != null && !column.containsKey("key") && (type.equals("int") || type.equals("long"))) {
        most = Math.max(Math.abs(number(low)), Math.abs(number(high)));
      }
      sum += most * file.recordCount();
    }
    return sum;
  }

  /** A bound of an integer, which a file may have as an int of 32 bits. */
  private static double number(ByteBuffer bound) {
    ByteBuffer bytes = (ByteBuffer) bound.duplicate();
    bytes.order(ByteOrder.LITTLE_ENDIAN);
    return bytes.remaining() == Integer.BYTES ? bytes.getInt() : bytes.getLong();
  }

  /**
   * Rows of the keys of each group and the buffers of all aggregates.
   *
   * @param unread the tasks of the rows that are still to be read
   * @return null if Spark has to read all rows: an expression fails for a value, or a sum might not be exact
   */
  public List rows(AggregateAnswer answer, List unread) throws Exception {
    if (!isExact(answer, unread)) {
      return null;
    }
    if (!computes) {
      return everyRow(answer, null);
    }
    Object rows = new EveryRow(answer).result(System.nanoTime() + answer.milliseconds * 1000000L);
    return rows == Evaluation.NOT_BEGUN ? null : (List) rows;
  }

  private class EveryRow extends Evaluation {
    private final AggregateAnswer answer;

    EveryRow(AggregateAnswer answer) {
      this.answer = answer;
    }

    protected Object evaluate() {
      return everyRow(answer, this);
    }

    void begin(GenericInternalRow values) {
      next();
      for (int i = 0; i < values.numFields(); i++) {
        if (isLong(values.genericGet(i))) {
          throw new ArithmeticException("a value that is too long to be tried");
        }
      }
    }
  }

  /** @param evaluation what waits for the rows; null if nothing is computed of values */
  private List everyRow(AggregateAnswer answer, EveryRow evaluation) {
    List rows = new ArrayList(answer.size);
    for (Buffer buffer : buffers) {
      if (buffer.computed != null) {
        buffer.computed.begin();
      }
    }
    GenericInternalRow values = new GenericInternalRow(groups.size());
    for (int group = 0; group < answer.size; group++) {
      for (int i = 0; i < groups.size(); i++) {
        values.update(i, answer.keys[i].get(group, (DataType) groupTypes.get(i)));
      }
      if (evaluation != null) {
        evaluation.begin(values);
      }
      List<List> own = rowsOf(answer, group, values);
      for (List row : own) {
        rows.add(new GenericInternalRow(row.toArray()));
      }
      checkZeros(answer, group, values, own, signed.toArray(), 0);
    }
    for (Buffer buffer : buffers) {
      if (buffer.computed != null) {
        buffer.computed.end();
      }
    }
    return rows;
  }

  /** The rows of a group, each a list: one for each row that comes of a row of the scan. */
  private List rowsOf(AggregateAnswer answer, int group, GenericInternalRow values) {
    List rows = new ArrayList();
    for (int projection = 0; projection < keys.size(); projection++) {
      List row = new ArrayList();
      for (Expression key : (List<Expression>) keys.get(projection)) {
        row.add(key.eval(values));
      }
      for (Buffer buffer : buffers) {
        Expression condition = buffer.conditions == null ? null : (Expression) buffer.conditions.get(projection);
        boolean counts = condition == null || Boolean.TRUE.equals(condition.eval(values));
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

  /** Check that a group has the same rows, whatever the signs of zeros. */
  private void checkZeros(
      AggregateAnswer answer, int group, GenericInternalRow values, List expected, Object[] places, int next) {
    if (next == places.length) {
      return;
    }
    checkZeros(answer, group, values, expected, places, next + 1);
    int place = ((Integer) places[next]).intValue();
    Object value = values.genericGet(place);
    Object opposite = ColumnFunction.opposite(value);
    if (opposite != null) {
      values.update(place, opposite);
      if (!rowsOf(answer, group, values).equals(expected)) {
        throw new ArithmeticException("a result that depends on the sign of a zero");
      }
      checkZeros(answer, group, values, expected, places, next + 1);
      values.update(place, value);
    }
  }

  /** An aggregate's buffer. */
  private static class Buffer {
    final String what;
    /** The place of the column that the aggregate is of; -1 for none. */
    final int column;
    final List types;
    /** The first type. */
    final DataType type;
    /** Which rows count, of a row of columns to group by: one for each row that comes of a row of the scan, or null. */
    final List<Expression> conditions;
    /** The values that are computed of such a row, or null. */
    final ComputedValues computed;

    Buffer(String what, int column, List types, List<Expression> conditions, ComputedValues computed) {
      this.what = what;
      this.column = column;
      this.types = types;
      this.type = (DataType) types.get(0);
      this.conditions = conditions;
      this.computed = computed;
    }

    /** Add the values of a group to a row; -1 stands for no rows at all. */
    void add(AggregateAnswer answer, int group, List row) {
      long count = group < 0 ? 0 : column < 0 ? answer.rows[group] : answer.values[column][group];
      if (what.equals("count")) {
        row.add(Long.valueOf(count));
      } else if (what.equals("sum")) {
        ComputedValues.addSum(count == 0 ? null : sum(answer, group), count, types, row);
      } else if (count == 0) {
        row.add(null);
      } else {
        AggregateAnswer.Values[] ends = what.equals("least") ? answer.least : answer.greatest;
        row.add(ends[column].get(group, type));
      }
    }

    private Object sum(AggregateAnswer answer, int group) {
      boolean isDouble = type instanceof DoubleType;
      Object sum = answer.sums[column].value(group, isDouble ? DataTypes.LongType : type);
      return isDouble ? (Object) Double.valueOf(((Long) sum).doubleValue()) : sum;
    }
  }

  /** Puts what projections compute in the place of the attributes that they name, by the ID of the attribute. */
  private static class ReplaceAttributes implements Change.OfNode {
    private final Map expressions;

    ReplaceAttributes(Map expressions) {
      this.expressions = expressions;
    }

    public Object changed(Object node) {
      return node instanceof Attribute ? expressions.get(((Attribute) node).exprId()) : null;
    }
  }
}
