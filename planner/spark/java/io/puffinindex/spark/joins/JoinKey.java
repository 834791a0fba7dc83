package io.puffinindex.spark.joins;

import io.puffinindex.spark.Lists;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.DynamicPruning;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.EvalMode;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.optimizer.JoinSelectionHelper;
import org.apache.spark.sql.catalyst.optimizer.PushDownLeftSemiAntiJoin$;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.dynamicpruning.PartitionPruning;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.LongType;
import scala.Option;

/** A column that a join compares with what its other side has. */
final class JoinKey extends AwaitedColumn {
  /** Nodes without an exchange: Spark always finds the broadcast of such a plan. */
  private static final Set<String> NARROW =
      Lists.words(
          "Project Filter Sample BatchEvalPython ArrowEvalPython MapInPandas MapInArrow LogicalRDD",
          "LogicalRelation DataSourceV2ScanRelation");

  private static final JoinSelectionHelper BROADCASTS = PushDownLeftSemiAntiJoin$.MODULE$;
  private static final Set<String> NORMALIZATIONS =
      Set.of("KnownFloatingPointNormalized", "NormalizeNaNAndZero");
  final LogicalPlan side;

  /** Whether the join is a subquery's, whose thread must wait for no other of its small pool. */
  boolean isInSubquery;

  private final Expression key;

  private final List<Expression> otherKeys;
  private final int at;

  private JoinKey(
      LogicalPlan side, Expression key, LogicalPlan other, List<Expression> otherKeys, int at) {
    super(attribute(key), side, other, "=", "join");
    this.side = side;
    this.key = key;
    this.otherKeys = otherKeys;
    this.at = at;
  }

  /** The columns of scans that can be restricted to what the other side of a join has. */
  static List<JoinKey> of(Join join) {
    List<JoinKey> found = new ArrayList<>();
    var extracted = ExtractEquiJoinKeys.unapply(join);
    if (extracted.isEmpty() || join.isStreaming()) {
      return found;
    }
    List<Expression> left = Lists.from(extracted.get()._2());
    List<Expression> right = Lists.from(extracted.get()._3());
    for (int i = 0; i < left.size(); i++) {
      if (PartitionPruning.canPruneLeft(join.joinType())) {
        found.add(new JoinKey(join.left(), left.get(i), join.right(), right, i));
      }
      if (PartitionPruning.canPruneRight(join.joinType())) {
        found.add(new JoinKey(join.right(), right.get(i), join.left(), left, i));
      }
    }
    found.removeIf(key -> !key.isTold(key.side));
    found.forEach(key -> key.rows = rowsOfTable(key.values));
    return found;
  }

  /** The attribute that a key is made of; null if the key cannot be turned around. */
  private static Attribute attribute(Expression key) {
    Expression plain = withoutNormalization(key);
    Expression child = plain instanceof Cast cast && isExact(cast) ? cast.child() : plain;
    return child instanceof Attribute attribute ? attribute : null;
  }

  /** Spark makes one key of both zeros, and one of all NaN; so does the index. */
  private static Expression withoutNormalization(Expression key) {
    return NORMALIZATIONS.contains(key.getClass().getSimpleName())
        ? withoutNormalization(key.children().apply(0))
        : key;
  }

  /** Whether a cast gives each value another image, so that it can be turned around. */
  private static boolean isExact(Cast cast) {
    var from = cast.child().dataType();
    var to = cast.dataType();
    if (to instanceof DecimalType decimal) {
      return decimal.isWiderThan(from);
    }
    if (to instanceof DoubleType) {
      return from instanceof FloatType
          || (from instanceof IntegralType && !(from instanceof LongType));
    }
    return from instanceof IntegralType
        && to instanceof IntegralType
        && to.defaultSize() > from.defaultSize();
  }

  /** The rows of a plan that is a whole table, but for rows with NULL; null for another plan. */
  private static Long rowsOfTable(LogicalPlan plan) {
    while (plan instanceof Project
        || (plan instanceof Filter filter && isNotNull(filter.condition()))) {
      plan = plan.children().apply(0);
    }
    if (!(plan instanceof DataSourceV2ScanRelation)) {
      return null;
    }
    var rows = plan.stats().rowCount();
    return rows.isDefined() ? (Long) rows.get().toLong() : null;
  }

  private static boolean isNotNull(Expression condition) {
    return condition instanceof And and
        ? isNotNull(and.left()) && isNotNull(and.right())
        : condition instanceof IsNotNull;
  }

  /** Whether only the join's broadcast can tell the keys, and it is certain to be one. */
  boolean isOfBroadcast(Join join) {
    boolean isRight = side == join.left();
    var hint = join.hint();
    boolean isWanted =
        isRight ? BROADCASTS.hintToBroadcastRight(hint) : BROADCASTS.hintToBroadcastLeft(hint);
    var type = join.joinType();
    boolean mayBe =
        isRight ? BROADCASTS.canBuildBroadcastRight(type) : BROADCASTS.canBuildBroadcastLeft(type);
    return mayBe
        && (isWanted || BROADCASTS.canBroadcastBySize(values, SQLConf.get()))
        && Lists.nodes(values, LogicalPlan.class).stream()
            .allMatch(
                node -> node.deterministic() && NARROW.contains(node.getClass().getSimpleName()))
        && !isCast()
        && !hasSubquery(values);
  }

  /** Whether the key is a cast of the column, which no broadcast of the join has as it is. */
  boolean isCast() {
    return withoutNormalization(key) instanceof Cast;
  }

  /** What a cast key implies: the column is equal to the other key, cast back. */
  Expression uncast() {
    return new EqualTo(attribute(key), otherKeyCastBack());
  }

  /** A key that the column's type does not have becomes NULL, and NULL is equal to nothing. */
  private Expression otherKeyCastBack() {
    return new Cast(otherKeys.get(at), attribute(key).dataType(), Option.empty(), EvalMode.TRY());
  }

  @Override
  public LogicalPlan filtered(LogicalPlan plan) {
    // Spark takes the keys from the broadcast that the join makes. Without one, the other side has
    // to run once more. It then runs in the pool of all subqueries, where it must wait for no
    // subquery. Runtime filters leave out only rows that a join leaves out as well.
    LogicalPlan alone =
        values.transformAllExpressions(
            Lists.change(
                node -> node instanceof DynamicPruning ? Literal$.MODULE$.TrueLiteral() : null));
    boolean mayRunAlone =
        !isInSubquery && isRepeatable && SmallSide.isCheaper(values, plan) && !hasSubquery(alone);
    if (!mayRunAlone && (isCast() || !alone.equals(values))) {
      return plan;
    }
    LogicalPlan query = mayRunAlone ? alone : values;
    if (!isCast()) {
      // With all keys of the join, in their order, Spark finds the broadcast that the join makes.
      return filtered(plan, query, otherKeys, at, !mayRunAlone);
    }
    return filtered(plan, query, List.of(otherKeyCastBack()), 0, false);
  }
}
