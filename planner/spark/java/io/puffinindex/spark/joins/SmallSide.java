package io.puffinindex.spark.joins;

import io.puffinindex.spark.Lists;
import io.puffinindex.spark.Settings;
import io.puffinindex.spark.SparkParts;
import io.puffinindex.spark.Trouble;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.commons.lang3.reflect.MethodUtils;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.LocalLimitExec;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.util.ThreadUtils;

/**
 * A plan with few rows whose keys restrict a scan, though Spark cannot tell its size or might get
 * other rows next time.
 *
 * <p>The plan runs once, before the query does. The query and its runtime filter then take these
 * rows.
 */
final class SmallSide {
  private static final int MOST_ROWS = 100000;
  private static final double MOST_BYTES = 64 << 20;

  /** Computing a side for its keys reads this share of the scan's side at most, as a divisor. */
  private static final double LEAST_GAIN = 8;

  /** How many bytes of the scan allow a millisecond: 5 % of its time at 250 MB a second. */
  private static final double BYTES_A_MILLISECOND = 5e6;

  private static final long MOST_MILLISECONDS = 10000;

  /** Only jobs that have begun can be ended. */
  private static final long CANCEL_AGAIN_MILLISECONDS = 20;

  private static final String SETTING = "side-milliseconds";
  private static final String DEFAULT_MILLISECONDS = "5000";

  /**
   * The memory bound of a job's Python workers; zero is none. A job never gets workers that have
   * another bound.
   *
   * <p>So a side shares no worker with the query. Spark ends all Python workers of a task that
   * outlives its job, also those that the task has given back and the query has by then
   * (SPARK-54217). A bound in Spark's configuration overrides this one, and the workers are shared.
   */
  private static final String WORKER_MEMORY = "resource.pyspark.memory";

  private static final String NO_BOUND = "0";

  /** By hash of a plan and setting. */
  private static final Map<String, GivenUp> GIVEN_UP = Lists.latest(10000);

  /** The next run may be fast: the first one starts Python, and waits for compilers. */
  private static final long FIRST_PAUSE_NANOSECONDS = 10L * 1000000000L;

  private static final long PAUSE_GROWS = 8;
  private static final long LONGEST_PAUSE_NANOSECONDS = 600L * 1000000000L;

  /** The rows of plans that have run, null if there are none; equal plans have the same rows. */
  private final Map<LogicalPlan, LocalRelation> known = new HashMap<>();

  static double bytes(LogicalPlan plan) {
    return plan.stats().sizeInBytes().toDouble();
  }

  /** Whether a plan's tables are, as far as Spark knows, small beside the scan's side. */
  static boolean isCheaper(LogicalPlan plan, LogicalPlan side) {
    double unknown = SQLConf.get().defaultSizeInBytes();
    double sum =
        Lists.from(plan.collectLeaves()).stream()
            .mapToDouble(SmallSide::bytes)
            .filter(bytes -> bytes != unknown)
            .sum();
    return sum * LEAST_GAIN <= bytes(side);
  }

  /** The rows of a plan; null if there are too many, or they take too long. */
  LogicalPlan rows(LogicalPlan plan, LogicalPlan side) {
    if (!known.containsKey(plan.canonicalized())) {
      known.put(plan.canonicalized(), run(plan, side));
    }
    return known(plan);
  }

  private LogicalPlan known(LogicalPlan plan) {
    LocalRelation rows = known.get(plan.canonicalized());
    return rows == null ? null : relation(plan, rows.data());
  }

  private static LocalRelation relation(LogicalPlan plan, Object rows) {
    return SparkParts.made(LocalRelation.class, plan.output(), rows, false);
  }

  /** A query whose scalar subqueries have the value that runtime filters have taken. */
  LogicalPlan consistent(LogicalPlan query) {
    return known.isEmpty() ? query : query.transformAllExpressions(Lists.change(this::consistent));
  }

  private Expression consistent(Expression node) {
    LogicalPlan rows =
        node instanceof ScalarSubquery scalar && !scalar.isCorrelated()
            ? known(scalar.plan())
            : null;
    return rows == null ? null : ((ScalarSubquery) node).withNewPlan(rows);
  }

  private static LocalRelation run(LogicalPlan plan, LogicalPlan side) {
    GivenUp givenUp = GIVEN_UP.get(name(plan));
    if (givenUp != null && System.nanoTime() - givenUp.until < 0) {
      return null;
    }
    var context = SparkSession.active().sparkContext();
    String tag = Trouble.OWN_TAG + UUID.randomUUID();
    var timer = ThreadUtils.newDaemonSingleThreadScheduledExecutor(tag);
    context.addJobTag(tag);
    String memory = context.getLocalProperty(WORKER_MEMORY);
    context.setLocalProperty(WORKER_MEMORY, NO_BOUND);
    try {
      double bound = Math.min(bytes(side) / BYTES_A_MILLISECOND, MOST_MILLISECONDS);
      long least = Long.parseLong(setting());
      var unused =
          timer.scheduleWithFixedDelay(
              () -> context.cancelJobsWithTag(tag),
              Math.max(least, (long) bound),
              CANCEL_AGAIN_MILLISECONDS,
              TimeUnit.MILLISECONDS);
      Object executed =
          MethodUtils.invokeStaticMethod(
              QueryExecution.class,
              "prepareExecutedPlan",
              new Object[] {SparkSession.active(), plan});
      InternalRow[] rows = take((SparkPlan) executed, context.defaultParallelism());
      LocalRelation relation = relation(plan, Lists.of(rows));
      boolean isSmall = rows.length <= MOST_ROWS && bytes(relation) <= MOST_BYTES;
      return isSmall
          ? relation
          : givenUp(plan, "it has more than " + MOST_ROWS + " rows or 64 MB", null);
    } catch (Exception e) {
      Trouble.passOn(e);
      // The query runs the side itself, and tells what is wrong with it.
      return givenUp(plan, "it failed, or took longer than " + SETTING + " allows", e);
    } finally {
      timer.shutdown();
      context.setLocalProperty(WORKER_MEMORY, memory);
      context.removeJobTag(tag);
    }
  }

  /** One row more than there may be at most, in one job: Spark's take may need several. */
  private static InternalRow[] take(SparkPlan plan, int most) {
    int partitions = plan.execute().getNumPartitions();
    return partitions > 1 && partitions <= most
        ? new LocalLimitExec(MOST_ROWS + 1, plan).executeCollect()
        : plan.executeTake(MOST_ROWS + 1);
  }

  private static String setting() {
    return Settings.ofSession().get(SETTING, DEFAULT_MILLISECONDS);
  }

  private static String name(LogicalPlan plan) {
    return plan.semanticHash() + " " + setting();
  }

  private static LocalRelation givenUp(LogicalPlan plan, String reason, Exception e) {
    GivenUp before = GIVEN_UP.get(name(plan));
    long slower = before == null ? FIRST_PAUSE_NANOSECONDS : before.pause * PAUSE_GROWS;
    // A side that has too many rows has them the next time, too.
    long pause =
        e == null ? LONGEST_PAUSE_NANOSECONDS : Math.min(slower, LONGEST_PAUSE_NANOSECONDS);
    GIVEN_UP.put(name(plan), new GivenUp(System.nanoTime() + pause, pause));
    Trouble.LOG.info(
        "a side gives no keys to the scan that it is joined with: {}: {}",
        reason,
        plan.simpleString(100));
    Trouble.LOG.debug("a side gives no keys", e);
    return null;
  }

  /** The time from which a plan is run again, and the pause before that, in ns. */
  private record GivenUp(long until, long pause) {}
}
