package io.puffinindex.spark;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.dynamicpruning.PartitionPruning;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import scala.Option;
import scala.Tuple2;
import scala.Tuple8;

/** Lets scans wait for the keys that the other side of a join has ({@link RuntimeFilters}). */
public class JoinPruning {
  /** Computing a side once more for its keys reads this share of the other side at most, as a divisor. */
  private static final BigInteger LEAST_GAIN = BigInteger.valueOf(8);

  private JoinPruning() {}

  /** Find the columns of scans that the other side of a join can restrict. */
  public static void collect(LogicalPlan plan, List<AwaitedColumn> found) {
    if (plan instanceof Join) {
      List keys = keys((Join) plan);
      for (int i = 0; i < keys.size(); i++) {
        Key key = (Key) keys.get(i);
        found.add(new AwaitedColumn(key.found, "=", rowsOfTable(key.other), "join"));
      }
    }
    scala.collection.Iterator children = plan.children().iterator();
    while (children.hasNext()) {
      collect((LogicalPlan) children.next(), found);
    }
  }

  /** How many rows a plan has that is a whole table, but for rows with NULL; null if the plan is something else. */
  private static Long rowsOfTable(LogicalPlan plan) {
    while (plan instanceof Project || (plan instanceof Filter && isNotNull(((Filter) plan).condition()))) {
      plan = (LogicalPlan) plan.children().apply(0);
    }
    if (!(plan instanceof DataSourceV2ScanRelation)) {
      return null;
    }
    Option rows = plan.stats().rowCount();
    return rows.isEmpty() ? null : Long.valueOf(((scala.math.BigInt) rows.get()).toLong());
  }

  private static boolean isNotNull(Expression condition) {
    if (condition instanceof And) {
      return isNotNull(((And) condition).left()) && isNotNull(((And) condition).right());
    }
    return condition instanceof IsNotNull;
  }

  /** The plan with runtime filters on the scans that take them. */
  public static LogicalPlan apply(LogicalPlan plan) {
    return (LogicalPlan) plan.transformUp(new Change(new InsertFilters()));
  }

  /** The keys of a join by which a scan on one side can be restricted to what the other side has. */
  private static List keys(Join join) {
    List keys = new ArrayList();
    Option extracted = ExtractEquiJoinKeys.unapply(join);
    if (extracted.isEmpty() || join.isStreaming()) {
      return keys;
    }
    Tuple8 parts = (Tuple8) extracted.get();
    List left = list((scala.collection.Iterable) parts._2());
    List right = list((scala.collection.Iterable) parts._3());
    JoinType type = join.joinType();
    for (int i = 0; i < left.size(); i++) {
      if (PartitionPruning.canPruneLeft(type)) {
        addKey(keys, new Key(join.left(), (Expression) left.get(i), join.right(), right, i));
      }
      if (PartitionPruning.canPruneRight(type)) {
        addKey(keys, new Key(join.right(), (Expression) right.get(i), join.left(), left, i));
      }
    }
    return keys;
  }

  private static void addKey(List keys, Key key) {
    if (key.found != null && RuntimeFilters.isRepeatable(key.other)) {
      keys.add(key);
    }
  }

  private static List list(scala.collection.Iterable items) {
    List list = new ArrayList();
    for (scala.collection.Iterator it = items.iterator(); it.hasNext(); ) {
      list.add(it.next());
    }
    return list;
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
    final List otherKeys;
    final int at;
    /** The attribute of this side that the key is made of; null if the key cannot be turned around. */
    final Attribute attribute;
    /** What of the other side is compared with the attribute itself. */
    final Expression otherKey;
    /** The attribute of a scan that the key is, and the scan's relation; null if there is no such scan. */
    final Tuple2 found;

    Key(LogicalPlan side, Expression key, LogicalPlan other, List otherKeys, int at) {
      this.side = side;
      this.other = other;
      this.otherKeys = otherKeys;
      this.at = at;
      Expression plain = withoutNormalization(key);
      Expression partner = (Expression) otherKeys.get(at);
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
      found = attribute == null ? null : RuntimeFilters.find(attribute, side);
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

    boolean isTaken() {
      DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) found._2();
      return RuntimeScan.takes(relation.scan(), ((Attribute) found._1()).name());
    }

    /** This side with the filter, as near to the scan as it may be. */
    LogicalPlan filtered(LogicalPlan side) throws Exception {
      boolean isBare = otherKey == otherKeys.get(at);
      // Spark takes the keys from the broadcast that the join makes. Without one, the other side has to run once more. It
      // then runs in the pool of all subqueries, where it must wait for no subquery.
      LogicalPlan alone = RuntimeFilters.unfiltered(other);
      boolean mayRunAlone =
          sourceBytes(other).multiply(LEAST_GAIN).compareTo(bytes(side)) <= 0 && !RuntimeFilters.hasSubquery(alone);
      if (!mayRunAlone && (!isBare || !alone.equals(other))) {
        return side;
      }
      // With all keys of the join, in their order, Spark finds the broadcast that the join makes.
      List keys = isBare ? otherKeys : Collections.singletonList(otherKey);
      return RuntimeFilters.filtered(side, attribute, mayRunAlone ? alone : other, keys, isBare ? at : 0, !mayRunAlone);
    }
  }

  /** Puts filters on one side of each join: on the larger one, if both have a scan that takes them. */
  private static class InsertFilters implements Change.OfNode {
    public Object changed(Object node) {
      if (!(node instanceof Join)) {
        return null;
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
        return null;
      }
      return prunesLeft
          ? join.copy(pruned, join.right(), join.joinType(), join.condition(), join.hint())
          : join.copy(join.left(), pruned, join.joinType(), join.condition(), join.hint());
    }
  }
}
