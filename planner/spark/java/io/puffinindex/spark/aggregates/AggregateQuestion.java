package io.puffinindex.spark.aggregates;

import io.puffinindex.spark.Lists;
import io.puffinindex.spark.Node;
import io.puffinindex.spark.conditions.Conditions;
import io.puffinindex.spark.functions.ColumnFunction;
import io.puffinindex.spark.scans.View;
import java.io.DataInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;
import org.apache.commons.lang3.StringUtils;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
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
  private static final int MOST_DIGITS = 38;
  private static final int MORE_DIGITS_OF_SUMS = 10;
  private static final int MOST_TEXT = 200;

  private final Conditions conditions;

  /** What an expression of the input is of columns of the scan, for each row that comes of one. */
  private final List<UnaryOperator<Expression>> projections;

  /** Nodes of the columns that aggregates are of, with what is wanted of them. */
  final List<Node> columns = new ArrayList<>();

  /** Nodes of the columns to group by, and their types. */
  final List<Node> groups = new ArrayList<>();

  final List<DataType> groupTypes = new ArrayList<>();

  /** Places of {@link #groups} whose two zeros may differ in results: the index has one key. */
  final SortedSet<Integer> signed = new TreeSet<>();

  /** The places of columns to group by whose values are added up as doubles. */
  private final SortedSet<Integer> addedDoubles = new TreeSet<>();

  /** The expressions to group by, of a row of {@link #groups}; for each row that comes of one. */
  final List<List<Expression>> keys = new ArrayList<>();

  final List<AggregateRows.Buffer> buffers = new ArrayList<>();
  private final List<String> texts = new ArrayList<>();

  /** Whether a key or an input of an aggregate is computed of the values of columns. */
  private boolean hasFunctions;

  /** Whether an earlier answer was of no use. */
  boolean isDeclined;

  private AggregateQuestion(Conditions conditions, List<UnaryOperator<Expression>> projections) {
    this.conditions = conditions;
    this.projections = projections;
  }

  /**
   * What an aggregate wants; null if the index cannot answer it.
   *
   * @param partial the first of Spark's aggregates, which reads rows
   * @param conditions the whole filter above the scan; takes the columns that aggregates name
   * @param projections what expressions of the input are of columns of the scan: one mostly, one
   *     for each row that ROLLUP and CUBE make of a row
   */
  static AggregateQuestion of(
      BaseAggregateExec partial,
      Conditions conditions,
      List<UnaryOperator<Expression>> projections) {
    AggregateQuestion question = new AggregateQuestion(conditions, projections);
    List<NamedExpression> groupings = Lists.from(partial.groupingExpressions());
    try {
      for (UnaryOperator<Expression> projection : projections) {
        question.keys.add(
            groupings.stream()
                .map(grouping -> question.key((Expression) grouping, projection))
                .toList());
      }
      // Without a column, no rows would still be one group.
      check(groupings.isEmpty() || !question.groups.isEmpty());
      Lists.from(partial.aggregateExpressions()).forEach(question::addAggregate);
      return question;
    } catch (NotOfIndexException e) {
      return null;
    }
  }

  private static void check(boolean isOfIndex) {
    if (!isOfIndex) {
      throw new NotOfIndexException();
    }
  }

  private static final class NotOfIndexException extends RuntimeException {
    private static final long serialVersionUID = 1;
  }

  static AggregateQuestion ofRows(Conditions conditions) {
    AggregateQuestion question = new AggregateQuestion(conditions, List.of());
    question.texts.add("count(*)");
    return question;
  }

  boolean computes() {
    return hasFunctions
        || buffers.stream().anyMatch(one -> one.conditions() != null || one.computed() != null);
  }

  public AggregateAnswer read(View view, RoaringBitmap asked, DataInputStream in)
      throws IOException {
    return new AggregateAnswer(view, asked, groups.size(), columns, in);
  }

  public Node node(Node deletes) {
    Node node =
        Node.of(
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

  private Expression key(Expression grouping, UnaryOperator<Expression> projection) {
    Expression expression = grouping instanceof Alias alias ? alias.child() : grouping;
    // Which of the strings that a collation equates stands for a group depends on the order.
    check(!expression.dataType().sql().contains("COLLATE"));
    return bound(projection.apply(expression), true);
  }

  private List<Expression> inputs(Expression expression) {
    return projections.stream().map(projection -> projection.apply(expression)).toList();
  }

  private List<Expression> bound(List<Expression> expressions, boolean isWhole) {
    return expressions.stream().map(expression -> bound(expression, isWhole)).toList();
  }

  /** An expression of {@link #groups}; both zeros are one value for it if {@code isWhole}. */
  private Expression bound(Expression expression, boolean isWhole) {
    Node column = conditions.columnOrKey(expression);
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
    hasFunctions = true;
    boolean isNormalized = expression instanceof NormalizeNaNAndZero;
    check(
        !(expression instanceof AttributeReference)
            && (isNormalized || ColumnFunction.isRepeatable(expression)));
    List<Expression> children = bound(Lists.from(expression.children()), isNormalized);
    return children.isEmpty() ? expression : expression.withNewChildren(Lists.of(children));
  }

  private void addAggregate(AggregateExpression aggregate) {
    AggregateFunction function = aggregate.aggregateFunction();
    Class<?> type = function.getClass();
    boolean isEnd = type == Min.class || type == Max.class;
    boolean isAddedUp = type == Sum.class || type == Average.class;
    check(
        aggregate.mode() == Partial$.MODULE$
            && !aggregate.isDistinct()
            && function.children().size() == 1
            && (isEnd || isAddedUp || type == Count.class));
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
    check(
        (!isAddedUp || own instanceof NumericType)
            && (!isEnd || hasEnds)
            && types.equals(bufferTypes(type, own)));
    // Whether a row counts is known of a whole group, if the columns are grouped by.
    List<Expression> conditions =
        aggregate.filter().isEmpty() ? null : bound(inputs(aggregate.filter().get()), false);
    boolean isSame = Collections.frequency(inputs, child) == inputs.size();
    if (type == Count.class && child instanceof Literal literal && isSame) {
      check(literal.value() != null);
      texts.add("count(*)");
      buffers.add(new AggregateRows.Buffer("count", -1, types, conditions, null));
      return;
    }
    // Spark adds small decimals up as integers.
    boolean isUnscaled = child instanceof UnscaledValue;
    Expression plain = child instanceof UnscaledValue unscaled ? unscaled.child() : child;
    Node node = isSame ? this.conditions.columnOrKey(plain) : null;
    if (node == null || (isAddedUp && isFloating(own)) || (isUnscaled && !isAddedUp)) {
      addComputed(function, inputs, types, conditions);
      return;
    }
    int column = columns.stream().map(one -> one.get("column")).toList().indexOf(node);
    if (column < 0) {
      column = columns.size();
      columns.add(
          Node.of(
              "column", node, "sum", false, "double", false, "least", false, "greatest", false));
    }
    texts.add(function.prettyName() + "(" + ColumnFunction.name(node) + ")");
    String what = isAddedUp ? "sum" : isEnd ? (type == Min.class ? "least" : "greatest") : "count";
    columns.get(column).computeIfPresent(what, (name, isWanted) -> true);
    if (type == Average.class && !(own instanceof DecimalType)) {
      columns.get(column).put("double", true);
    }
    buffers.add(new AggregateRows.Buffer(what, column, types, conditions, null));
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
      DataType second = type == Sum.class ? DataTypes.BooleanType : DataTypes.LongType;
      int precision = Math.min(MOST_DIGITS, decimal.precision() + MORE_DIGITS_OF_SUMS);
      return List.of(new DecimalType(precision, decimal.scale()), second);
    }
    return type == Average.class
        ? List.of(DataTypes.DoubleType, DataTypes.LongType)
        : List.of(isFloating(own) ? DataTypes.DoubleType : DataTypes.LongType);
  }

  /** Add an aggregate of an expression: the index tells how many rows have each value. */
  private void addComputed(
      AggregateFunction function,
      List<Expression> inputs,
      List<DataType> types,
      List<Expression> conditions) {
    boolean isAddedUp = function instanceof Sum || function instanceof Average;
    // A sum is the same for both zeros.
    List<Expression> values = bound(inputs, isAddedUp);
    String text = inputs.get(0).toString().replaceAll("#\\d+L?", "");
    texts.add(function.prettyName() + "(" + StringUtils.left(text, MOST_TEXT) + ")");
    if (function instanceof Count) {
      List<Expression> known = new ArrayList<>();
      for (int i = 0; i < values.size(); i++) {
        Expression isKnown = new IsNotNull(values.get(i));
        known.add(conditions == null ? isKnown : new And(conditions.get(i), isKnown));
      }
      buffers.add(new AggregateRows.Buffer("count", -1, types, known, null));
      return;
    }
    for (Expression value : values) {
      if (isAddedUp && isFloating(value.dataType()) && value instanceof BoundReference reference) {
        addedDoubles.add(reference.ordinal());
      }
    }
    ComputedValues computed = new ComputedValues(isAddedUp, types, values);
    buffers.add(new AggregateRows.Buffer("computed", -1, types, conditions, computed));
  }

  private static boolean isFloating(DataType type) {
    return type instanceof DoubleType || type instanceof FloatType;
  }
}
