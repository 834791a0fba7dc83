package io.puffinindex.spark;

import io.puffinindex.spark.aggregates.AnswerAggregates;
import io.puffinindex.spark.commands.IndexStatements;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.function.BiFunction;
import org.apache.commons.lang3.reflect.FieldUtils;
import org.apache.commons.lang3.reflect.MethodUtils;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.internal.SQLConf;
import scala.collection.mutable.HashMap;
import scala.runtime.AbstractFunction1;

/**
 * What sessions get: a rule, strategies and procedures. As a function, it gives them to a session
 * without a hook, which keeps one of its own until that ends.
 *
 * <p>All sessions of an application share their extensions and ask these for rules whenever they
 * plan a query. A rule of the extensions runs too early, so this function adds the rule to the
 * session's own rules, which run last.
 */
public final class Hook extends AbstractFunction1<Object, Rule<LogicalPlan>>
    implements AutoCloseable {
  private static final String CATALOG = "puffin";
  private static final String PROCEDURES = "io.puffinindex.spark.commands.Procedures";
  private static final Set<String> OURS =
      Set.of(
          PruneScans.class.getName(),
          AnswerAggregates.class.getName(),
          IndexStatements.class.getName());

  private final PruneScans rule;
  private final IndexStatements statements;

  /** The catalog of the procedures; null before Spark 4. */
  private final Object procedures;

  /**
   * @param name of the planner's side of this hook
   * @param home the UUID of the session that it is made for
   * @param planner answers a request: (JSON, bitmap of row groups) to bytes
   * @param strict whether trouble fails queries of sessions that do not set this themselves
   * @param statements executes a statement: (JSON, session) to JSON
   * @param described a JSON list of the procedures
   */
  public Hook(
      String name,
      String home,
      BiFunction<String, byte[], byte[]> planner,
      Boolean strict,
      BiFunction<String, SparkSession, String> statements,
      String described)
      throws ReflectiveOperationException {
    rule = new PruneScans(name, home, planner, strict);
    this.statements = new IndexStatements(rule, statements);
    procedures = procedures(this.statements, described);
  }

  private static Object procedures(IndexStatements statements, String described)
      throws ReflectiveOperationException {
    try {
      return Class.forName(PROCEDURES).getConstructors()[0].newInstance(statements, described);
    } catch (ClassNotFoundException e) {
      return null;
    }
  }

  /**
   * Put the hook into a session, in place of another.
   *
   * @param ended the names of hooks that end if the session has them
   * @param all whether to do so in all sessions without a hook of their own as well
   * @return what is not as it should be, or null
   */
  public String enable(Object session, Collection<String> ended, boolean all)
      throws ReflectiveOperationException {
    for (Rule<LogicalPlan> other : rules(session)) {
      if (ended.contains((String) MethodUtils.invokeMethod(other, "hook"))) {
        MethodUtils.invokeMethod(other, "end");
      }
    }
    String trouble = give(session, rule);
    if (all) {
      Object extensions = SparkParts.of(session, "extensions");
      MethodUtils.invokeMethod(extensions, "injectOptimizerRule", this);
      // Spark executes CALL, which may come first, before it asks for optimizer rules.
      MethodUtils.invokeMethod(extensions, "injectResolutionRule", this);
    }
    return trouble;
  }

  @Override
  public Rule<LogicalPlan> apply(Object session) {
    try {
      synchronized (SparkParts.of(session, "experimental")) {
        if (!rule.hasEnded() && !hasHook(session)) {
          String trouble = give(session, rule.of((String) SparkParts.of(session, "sessionUUID")));
          if (trouble != null) {
            Trouble.LOG.warn(trouble);
          }
        }
      }
    } catch (Exception e) {
      Trouble.LOG.warn("no index is used in this session", e);
    }
    return new Unchanging(() -> {});
  }

  @Override
  public void close() {
    rule.end();
  }

  /** Give a session the hook, and say what is not as it should be, or null. */
  private String give(Object session, PruneScans own) throws ReflectiveOperationException {
    put(session, List.of(own), List.of(new AnswerAggregates(own), statements));
    try {
      return procedures == null || putCatalog(session, procedures)
          ? null
          : "the session has a catalog puffin of its own: CALL does not find the procedures,"
              + " planner.call(spark, ...) does";
    } catch (ReflectiveOperationException e) {
      return "CALL puffin.system is not there, planner.call(spark, ...) is: " + e;
    }
  }

  /** Put rules and strategies into a session, in place of all of ours. */
  static void put(Object session, List<PruneScans> rules, List<SparkStrategy> strategies)
      throws ReflectiveOperationException {
    ExperimentalMethods methods = (ExperimentalMethods) SparkParts.of(session, "experimental");
    synchronized (methods) {
      methods.extraOptimizations_$eq(
          Lists.of(others(Lists.from(methods.extraOptimizations()), rules)));
      methods.extraStrategies_$eq(
          Lists.of(others(Lists.from(methods.extraStrategies()), strategies)));
    }
  }

  /**
   * Put the catalog of procedures into a session, or take it away if it is null; false if the
   * session has another one of the name, which stays.
   *
   * <p>Spark has no method for that: it makes catalogs of classes, which it looks for where the
   * driver's own classes are.
   */
  @SuppressWarnings("unchecked") // reflection
  static boolean putCatalog(Object session, Object catalog) throws ReflectiveOperationException {
    Object manager = SparkParts.of(session, "sessionState", "catalogManager");
    SQLConf conf = (SQLConf) SparkParts.of(session, "sessionState", "conf");
    synchronized (manager) {
      var catalogs = (HashMap<String, Object>) FieldUtils.readField(manager, "catalogs", true);
      boolean isFree =
          catalogs.contains(CATALOG)
              // Each loader has another class of the same name.
              ? catalogs.apply(CATALOG).getClass().getName().equals(PROCEDURES)
              : !conf.contains("spark.sql.catalog." + CATALOG);
      if (isFree && catalog != null) {
        catalogs.put(CATALOG, catalog);
      } else if (isFree) {
        catalogs.remove(CATALOG);
      }
      return isFree;
    }
  }

  private static <T> List<T> others(List<T> all, List<? extends T> ours) {
    List<T> others = new ArrayList<>(all);
    others.removeIf(Hook::isOurs);
    others.addAll(ours);
    return others;
  }

  private static List<Rule<LogicalPlan>> rules(Object session) throws ReflectiveOperationException {
    var methods = (ExperimentalMethods) SparkParts.of(session, "experimental");
    return Lists.from(methods.extraOptimizations()).stream().filter(Hook::isOurs).toList();
  }

  private static boolean hasHook(Object session) throws ReflectiveOperationException {
    for (Rule<LogicalPlan> other : rules(session)) {
      if (!(Boolean) MethodUtils.invokeMethod(other, "hasEnded")) {
        return true;
      }
    }
    return false;
  }

  /** Whether an object is of a class as another Python process of this JVM may have loaded it. */
  private static boolean isOurs(Object object) {
    return OURS.contains(object.getClass().getName());
  }

  /** What extensions return, which must be a rule: one that runs something and changes no plan. */
  static final class Unchanging extends Rule<LogicalPlan> {
    private final Runnable first;

    Unchanging(Runnable first) {
      this.first = first;
    }

    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      first.run();
      return plan;
    }
  }
}
