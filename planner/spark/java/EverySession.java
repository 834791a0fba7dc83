package io.puffinindex.spark;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction1;

/**
 * Gives a rule and a strategy to all sessions of an application, later ones included. All sessions share their extensions and ask these
 * for rules whenever they plan a query. A rule of the extensions runs too early, so this one adds the rule to the session's
 * own rules, which run last.
 */
public class EverySession extends AbstractFunction1 {
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

  private void give(Object session) throws Exception {
    // The session's class is another one in Spark 3.5 than in Spark 4.
    ExperimentalMethods methods = (ExperimentalMethods) ScanTasks.call(session, "experimental");
    synchronized (methods) {
      List rules = new ArrayList();
      for (Iterator it = methods.extraOptimizations().iterator(); it.hasNext(); ) {
        Object other = it.next();
        if (other.getClass().getName().equals(PruneScans.class.getName())) {
          return;
        }
        rules.add(other);
      }
      PruneScans own = rule.of((String) ScanTasks.call(session, "sessionUUID"));
      rules.add(own);
      set(methods, "extraOptimizations_$eq", rules);
      List strategies = new ArrayList();
      for (Iterator it = methods.extraStrategies().iterator(); it.hasNext(); ) {
        strategies.add(it.next());
      }
      strategies.add(strategy.of(own));
      strategies.add(statements);
      set(methods, "extraStrategies_$eq", strategies);
    }
    try {
      if (procedures != null && !SessionCatalogs.put(session, "puffin", procedures)) {
        LOG.warn("the session has a catalog puffin of its own: CALL does not find the procedures");
      }
    } catch (ReflectiveOperationException e) {
      LOG.warn("CALL puffin.system is not there in this session", e);
    }
  }

  /** Call a method whose parameter is of another class in Scala 2.12 than in 2.13. */
  private static void set(ExperimentalMethods methods, String name, List items) throws Exception {
    Method[] all = ExperimentalMethods.class.getMethods();
    for (int i = 0; i < all.length; i++) {
      if (all[i].getName().equals(name)) {
        all[i].invoke(methods, new Object[] {PythonUtils.toSeq(items)});
      }
    }
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
