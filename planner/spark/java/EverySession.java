package io.puffinindex.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.runtime.AbstractFunction1;

/**
 * Gives a rule and a strategy to all sessions of an application, later ones included. All sessions share their
 * extensions and ask these for rules whenever they plan a query. A rule of the extensions runs too early, so this one
 * adds the rule to the session's own rules, which run last.
 *
 * <p>A session with a hook of its own keeps it, until that hook ends.
 */
public class EverySession extends AbstractFunction1 implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger("puffin-index");

  private final PruneScans rule;
  private final AnswerAggregates strategy;
  private final IndexStatements statements;
  private final Object procedures;

  /** @param procedures the catalog of the procedures; null where Spark has none */
  public EverySession(PruneScans rule, AnswerAggregates strategy, IndexStatements statements, Object procedures) {
    this.rule = rule;
    this.strategy = strategy;
    this.statements = statements;
    this.procedures = procedures;
  }

  public Object apply(Object session) {
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
  public void close() {
    rule.end();
  }

  private void give(Object session) throws Exception {
    // The session's class is another one in Spark 3.5 than in Spark 4.
    ExperimentalMethods methods = (ExperimentalMethods) ScanTasks.call(session, "experimental");
    synchronized (methods) {
      List rules = new ArrayList();
      for (Object other : Lists.from(methods.extraOptimizations())) {
        if (!isOf(other, PruneScans.class)) {
          rules.add(other);
        } else if (!((Boolean) ScanTasks.call(other, "hasEnded")).booleanValue()) {
          return;
        }
      }
      PruneScans own = rule.of((String) ScanTasks.call(session, "sessionUUID"));
      rules.add(own);
      methods.extraOptimizations_$eq(Lists.of(rules));
      List strategies = new ArrayList();
      for (Object other : Lists.from(methods.extraStrategies())) {
        if (!isOf(other, AnswerAggregates.class) && !isOf(other, IndexStatements.class)) {
          strategies.add(other);
        }
      }
      strategies.add(strategy.of(own));
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

  /** Whether an object is of a class as another Python process of this JVM may have compiled it. */
  private static boolean isOf(Object object, Class ours) {
    return object.getClass().getName().equals(ours.getName());
  }

  /** A rule that does nothing, because extensions must return one. */
  private static class Nothing extends Rule {
    public String ruleName() {
      return "PuffinIndexEverySession";
    }

    public TreeNode apply(TreeNode plan) {
      return plan;
    }
  }
}
