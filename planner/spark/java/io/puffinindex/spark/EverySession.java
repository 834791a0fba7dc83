package io.puffinindex.spark;

import io.puffinindex.spark.aggregates.AnswerAggregates;
import io.puffinindex.spark.commands.IndexStatements;
import io.puffinindex.spark.commands.SessionCatalogs;
import java.util.ArrayList;
import java.util.List;
import org.apache.commons.lang3.reflect.MethodUtils;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.SparkStrategy;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.runtime.AbstractFunction1;

/**
 * Gives a rule and strategies to all sessions of an application, later ones included. All sessions
 * share their extensions and ask these for rules whenever they plan a query. A rule of the
 * extensions runs too early, so this one adds the rule to the session's own rules, which run last.
 *
 * <p>A session with a hook of its own keeps it, until that hook ends.
 */
public final class EverySession extends AbstractFunction1<Object, Rule<LogicalPlan>>
    implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger("puffin-index");

  private final PruneScans rule;
  private final IndexStatements statements;
  private final Object procedures;

  /**
   * @param procedures the catalog of the procedures; null where Spark has none
   */
  public EverySession(PruneScans rule, IndexStatements statements, Object procedures) {
    this.rule = rule;
    this.statements = statements;
    this.procedures = procedures;
  }

  @Override
  public Rule<LogicalPlan> apply(Object session) {
    if (!rule.hasEnded()) {
      try {
        give(session);
      } catch (Exception e) {
        LOG.warn("no index is used in this session", e);
      }
    }
    return new Nothing();
  }

  /** End the hook in all sessions that have it. */
  @Override
  public void close() {
    rule.end();
  }

  private void give(Object session) throws Exception {
    ExperimentalMethods methods = (ExperimentalMethods) SparkParts.of(session, "experimental");
    synchronized (methods) {
      List<Rule<LogicalPlan>> rules = new ArrayList<>();
      for (Rule<LogicalPlan> other : Lists.from(methods.extraOptimizations())) {
        if (!isOf(other, PruneScans.class)) {
          rules.add(other);
        } else if (!(Boolean) MethodUtils.invokeMethod(other, "hasEnded")) {
          return;
        }
      }
      PruneScans own = rule.of((String) SparkParts.of(session, "sessionUUID"));
      rules.add(own);
      methods.extraOptimizations_$eq(Lists.of(rules));
      List<SparkStrategy> strategies = new ArrayList<>(Lists.from(methods.extraStrategies()));
      strategies.removeIf(
          other -> isOf(other, AnswerAggregates.class) || isOf(other, IndexStatements.class));
      strategies.add(new AnswerAggregates(own));
      strategies.add(statements);
      methods.extraStrategies_$eq(Lists.of(strategies));
    }
    try {
      if (procedures != null && !SessionCatalogs.put(session, "puffin", procedures)) {
        LOG.warn("the session has a catalog puffin of its own: CALL does not find the procedures");
      }
    } catch (ReflectiveOperationException e) {
      LOG.warn("CALL puffin.system is not there in this session", e);
    }
  }

  /** Whether an object is of a class as another Python process of this JVM may have loaded it. */
  private static boolean isOf(Object object, Class<?> ours) {
    return object.getClass().getName().equals(ours.getName());
  }

  /** A rule that does nothing, because extensions must return one. */
  private static final class Nothing extends Rule<LogicalPlan> {
    @Override
    public String ruleName() {
      return "PuffinIndexEverySession";
    }

    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      return plan;
    }
  }
}
