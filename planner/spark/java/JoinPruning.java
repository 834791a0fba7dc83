package io.puffinindex.spark;

import java.lang.reflect.Constructor;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.EvalMode;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.optimizer.PushDownPredicates;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.dynamicpruning.CleanupDynamicPruningFilters;
import org.apache.spark.sql.execution.dynamicpruning.PartitionPruning;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import scala.Function1;
import scala.Option;
import scala.Tuple2;
import scala.Tuple8;
import scala.runtime.AbstractPartialFunction;

/**
 * Lets scans wait for the keys that the other side of a join has, by Spark's own dynamic pruning: a filter
 * {@code DynamicPruningSubquery} above a scan becomes a runtime filter of the scan. Spark itself does this for partition
 * columns only. Compiled by Janino: no generics, no lambdas.
 */
public class JoinPruning {
  /** A side of this size is computed once more for its keys, unless Spark broadcasts it and takes the keys from there. */
  private static final BigInteger SMALL_SIDE = BigInteger.valueOf(64L << 20);

  /** What computing a side once more may read. */
  private static final BigInteger SMALL_SOURCES = BigInteger.valueOf(256L << 20);

  /** Nodes that give the same rows each time. A node of another class, such as LIMIT, might give other rows. */
  private static final Set REPEATABLE = new HashSet();

  static {
    String[] names = {
      "Project", "Filter", "Join", "Aggregate", "Union", "Distinct", "SubqueryAlias", "View", "Expand", "LocalRelation",
      "OneRowRelation", "Range", "DataSourceV2ScanRelation", "LogicalRelation", "Repartition", "RepartitionByExpression",
      "RebalancePartitions", "ResolvedHint"
    };
    for (int i = 0; i < names.length; i++) {
      REPEATABLE.add(names[i]);
    }
  }

  private JoinPruning() {}

  /** The columns of scans that a join's other side can restrict, as pairs of a scan and a column's name. */
  public static List candidates(LogicalPlan plan) {
    List found = new ArrayList();
    collect(plan, found);
    return found;
  }

  private static void collect(LogicalPlan plan, List found) {
    if (plan instanceof Join) {
      List keys = keys((Join) plan);
      for (int i = 0; i < keys.size(); i++) {
        Key key = (Key) keys.get(i);
        DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) key.found()._2();
        found.add(new Object[] {relation.scan(), ((Attribute) key.found()._1()).name()});
      }
    }
    scala.collection.Iterator children = plan.children().iterator();
    while (children.hasNext()) {
      collect((LogicalPlan) children.next(), found);
    }
  }

  /** The plan with runtime filters on the scans that take them. */
  public static LogicalPlan apply(LogicalPlan plan) {
    LogicalPlan pruned = (LogicalPlan) plan.transformUp(new InsertFilters());
    // A filter that did not get as far as its scan would be evaluated row by row.
    return pruned == plan ? plan : (LogicalPlan) CleanupDynamicPruningFilters.apply(pruned);
  }

  /** The keys of a join by which a scan on one side can be restricted to what the other side has. */
  private static List keys(Join join) {
    List keys = new ArrayList();
    Option extracted = ExtractEquiJoinKeys.unapply(join);
    if (extracted.isEmpty() || join.isStreaming()) {
      return keys;
    }
    Tuple8 parts = (Tuple8) extracted.get();
    Object[] left = array((scala.collection.Iterable) parts._2());
    Object[] right = array((scala.collection.Iterable) parts._3());
    JoinType type = join.joinType();
    for (int i = 0; i < left.length; i++) {
      if (PartitionPruning.canPruneLeft(type)) {
        addKey(keys, new Key(join.left(), (Expression) left[i], join.right(), right, i));
      }
      if (PartitionPruning.canPruneRight(type)) {
        addKey(keys, new Key(join.right(), (Expression) right[i], join.left(), left, i));
      }
    }
    return keys;
  }

  private static void addKey(List keys, Key key) {
    if (key.found() != null && isRepeatable(key.other)) {
      keys.add(key);
    }
  }

  private static Object[] array(scala.collection.Iterable items) {
    List list = new ArrayList();
    for (scala.collection.Iterator it = items.iterator(); it.hasNext(); ) {
      list.add(it.next());
    }
    return list.toArray();
  }

  /** Whether another run of a plan gives the same rows: the keys may come from a run of their own. */
  private static boolean isRepeatable(LogicalPlan plan) {
    if (!plan.deterministic() || !REPEATABLE.contains(plan.getClass().getSimpleName()) || takesAnyRow(plan)) {
      return false;
    }
    if (plan instanceof LogicalRelation && !(((LogicalRelation) plan).relation() instanceof HadoopFsRelation)) {
      return false;
    }
    if (plan instanceof DataSourceV2ScanRelation && !RuntimeScan.isOfSnapshot(((DataSourceV2ScanRelation) plan).scan())) {
      return false;
    }
    for (scala.collection.Iterator it = plan.children().iterator(); it.hasNext(); ) {
      if (!isRepeatable((LogicalPlan) it.next())) {
        return false;
      }
    }
    return true;
  }

  /** Whether a node has an aggregate that depends on the order of rows, although Spark calls it deterministic. */
  private static boolean takesAnyRow(LogicalPlan plan) {
    for (scala.collection.Iterator it = plan.expressions().iterator(); it.hasNext(); ) {
      if (takesAnyRow((Expression) it.next())) {
        return true;
      }
    }
    return false;
  }

  private static boolean takesAnyRow(Expression expression) {
    String name = expression.getClass().getName();
    if (name.startsWith("org.apache.spark.sql.catalyst.expressions.aggregate.")) {
      String simple = name.substring(name.lastIndexOf('.') + 1);
      boolean isKnown =
          simple.equals("AggregateExpression") || simple.equals("Min") || simple.equals("Max") || simple.equals("Count");
      if (!isKnown && !(simple.equals("Sum") && !isFloating(expression.dataType()))) {
        return true;
      }
    } else if (name.contains("Python") || name.contains("ScalaUDF")) {
      return true;
    }
    for (scala.collection.Iterator it = expression.children().iterator(); it.hasNext(); ) {
      if (takesAnyRow((Expression) it.next())) {
        return true;
      }
    }
    return false;
  }

  private static boolean isFloating(DataType type) {
    return type instanceof DoubleType || type instanceof FloatType;
  }

  private static BigInteger bytes(LogicalPlan plan) {
    return plan.stats().sizeInBytes().bigInteger();
  }

  private static BigInteger sourceBytes(LogicalPlan plan) {
    if (plan.children().isEmpty()) {
      return bytes(plan);
    }
    BigInteger sum = BigInteger.ZERO;
    for (scala.collection.Iterator it = plan.children().iterator(); it.hasNext(); ) {
      sum = sum.add(sourceBytes((LogicalPlan) it.next()));
    }
    return sum;
  }

  /** One key of a join, seen from the side whose scan it restricts. */
  private static class Key {
    final LogicalPlan side;
    final LogicalPlan other;
    final Object[] otherKeys;
    final int at;
    /** The attribute of this side that the key is made of; null if the key is none that can be turned around. */
    final Attribute attribute;
    /** What of the other side is compared with the attribute itself. */
    final Expression otherKey;
    private final Tuple2 found;

    Key(LogicalPlan side, Expression key, LogicalPlan other, Object[] otherKeys, int at) {
      this.side = side;
      this.other = other;
      this.otherKeys = otherKeys;
      this.at = at;
      Expression plain = withoutNormalization(key);
      Expression partner = (Expression) otherKeys[at];
      if (plain instanceof Attribute) {
        attribute = (Attribute) plain;
        otherKey = partner;
      } else if (plain instanceof Cast && isExact((Cast) plain)) {
        attribute = (Attribute) ((Cast) plain).child();
        // A key that the attribute's type does not have becomes NULL, and NULL is equal to nothing.
        otherKey = new Cast(partner, attribute.dataType(), Option.empty(), EvalMode.TRY());
      } else {
        attribute = null;
        otherKey = null;
      }
      found = attribute == null ? null : find(attribute, side);
    }

    /** The attribute of a scan that the key is, and the scan's relation; null if there is no such scan. */
    Tuple2 found() {
      return found;
    }

    /** Spark makes one key of both zeros, and one of all NaN; so does the index. */
    private static Expression withoutNormalization(Expression key) {
      String name = key.getClass().getSimpleName();
      return name.equals("KnownFloatingPointNormalized") || name.equals("NormalizeNaNAndZero")
          ? withoutNormalization((Expression) key.children().apply(0))
          : key;
    }

    /** Whether a cast of an attribute gives each value another image, so that it can be turned around. */
    private static boolean isExact(Cast cast) {
      if (!(cast.child() instanceof Attribute)) {
        return false;
      }
      DataType from = cast.child().dataType();
      DataType to = cast.dataType();
      if (to instanceof DecimalType) {
        int digits = ((DecimalType) to).precision() - ((DecimalType) to).scale();
        return from instanceof DecimalType
            ? digits >= ((DecimalType) from).precision() - ((DecimalType) from).scale()
                && ((DecimalType) to).scale() >= ((DecimalType) from).scale()
            : rank(from) > 0 && digits >= new int[] {0, 3, 5, 10, 19}[rank(from)];
      }
      if (to instanceof DoubleType) {
        return from instanceof FloatType || (rank(from) > 0 && rank(from) < 4);
      }
      return rank(from) > 0 && rank(to) > rank(from);
    }

    private static int rank(DataType type) {
      return type instanceof ByteType
          ? 1
          : type instanceof ShortType ? 2 : type instanceof IntegerType ? 3 : type instanceof LongType ? 4 : 0;
    }

    private static Tuple2 find(Attribute attribute, LogicalPlan side) {
      Option found = PartitionPruning.findExpressionAndTrackLineageDown(attribute, side);
      if (found.isEmpty()) {
        return null;
      }
      Tuple2 pair = (Tuple2) found.get();
      return pair._1() instanceof Attribute && pair._2() instanceof DataSourceV2ScanRelation ? pair : null;
    }

    boolean isTaken() {
      DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) found._2();
      return RuntimeScan.takes(relation.scan(), ((Attribute) found._1()).name());
    }

    /** This side with the filter, as near to the scan as it may be. */
    LogicalPlan filtered(LogicalPlan side) throws Exception {
      boolean isBare = otherKey == otherKeys[at];
      BigInteger otherBytes = bytes(other);
      BigInteger small = SMALL_SIDE.max(BigInteger.valueOf(SQLConf.get().autoBroadcastJoinThreshold()));
      boolean mayRunAlone =
          otherBytes.compareTo(small) <= 0
              && otherBytes.compareTo(bytes(side)) < 0
              && sourceBytes(other).compareTo(SMALL_SOURCES) <= 0;
      if (!isBare && !mayRunAlone) {
        return side;
      }
      // With all keys of the join, in their order, Spark finds the broadcast that the join makes.
      Object[] keys = isBare ? otherKeys : new Object[] {otherKey};
      Expression subquery = subquery(attribute, other, keys, isBare ? at : 0, !mayRunAlone);
      return (LogicalPlan) PushDownPredicates.apply(new Filter(subquery, side));
    }

    /** Spark 4 takes several indices of keys where Spark 3.5 takes one. */
    private static Expression subquery(
        Attribute attribute, LogicalPlan query, Object[] keys, int at, boolean onlyInBroadcast) throws Exception {
      List list = new ArrayList();
      for (int i = 0; i < keys.length; i++) {
        list.add(keys[i]);
      }
      List indices = new ArrayList();
      indices.add(Integer.valueOf(at));
      Constructor constructor = DynamicPruningSubquery.class.getConstructors()[0];
      Object index =
          constructor.getParameterTypes()[3] == int.class ? (Object) Integer.valueOf(at) : PythonUtils.toSeq(indices);
      return (Expression)
          constructor.newInstance(
              new Object[] {
                attribute,
                query,
                PythonUtils.toSeq(list),
                index,
                Boolean.valueOf(onlyInBroadcast),
                NamedExpression$.MODULE$.newExprId(),
                Option.empty()
              });
    }
  }

  /** Puts filters on one side of each join: on the larger one, if both have a scan that takes them. */
  private static class InsertFilters extends AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return node instanceof Join;
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
      if (!isDefinedAt(node)) {
        return otherwise.apply(node);
      }
      Join join = (Join) node;
      List left = new ArrayList();
      List right = new ArrayList();
      List keys = keys(join);
      for (int i = 0; i < keys.size(); i++) {
        Key key = (Key) keys.get(i);
        if (key.isTaken()) {
          (key.side == join.left() ? left : right).add(key);
        }
      }
      if (left.isEmpty() && right.isEmpty()) {
        return join;
      }
      boolean prunesLeft = right.isEmpty() || (!left.isEmpty() && bytes(join.left()).compareTo(bytes(join.right())) >= 0);
      List chosen = prunesLeft ? left : right;
      LogicalPlan side = prunesLeft ? join.left() : join.right();
      LogicalPlan pruned = side;
      try {
        for (int i = 0; i < chosen.size(); i++) {
          pruned = ((Key) chosen.get(i)).filtered(pruned);
        }
      } catch (Exception e) {
        throw new IllegalStateException("no runtime filter in " + join.nodeName() + ": " + e.getMessage(), e);
      }
      if (pruned == side) {
        return join;
      }
      return prunesLeft
          ? join.copy(pruned, join.right(), join.joinType(), join.condition(), join.hint())
          : join.copy(join.left(), pruned, join.joinType(), join.condition(), join.hint());
    }
  }
}
