package io.puffinindex.spark;

import java.math.BigInteger;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Timer;
import java.util.TimerTask;
import java.util.UUID;
import org.apache.commons.lang3.reflect.MethodUtils;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.LocalLimitExec;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.internal.SQLConf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A plan with few rows whose keys restrict a scan, though Spark cannot tell its size or might get other rows next time.
 *
 * <p>The plan runs once, before the query does. The query and its runtime filter then take these rows.
 */
public class SmallSide implements Change.OfNode {
  private static final Logger LOG = LoggerFactory.getLogger("puffin-index");
  private static final int MOST_ROWS = 100000;
  private static final BigInteger MOST_BYTES = BigInteger.valueOf(64 << 20);

  /** Computing a side for its keys reads this share of the scan's side at most, as a divisor. */
  private static final BigInteger LEAST_GAIN = BigInteger.valueOf(8);

  /** A run may take a millisecond for this many bytes of the scan: 5 % of the scan's time at 250 MB a second. */
  private static final BigInteger BYTES_A_MILLISECOND = BigInteger.valueOf(5000000);

  private static final long MOST_MILLISECONDS = 10000;
  /** Only jobs that have begun can be ended. */
  private static final long CANCEL_AGAIN_MILLISECONDS = 20;

  private static final String SETTING = "spark.puffin-index.side-milliseconds";
  private static final String DEFAULT_MILLISECONDS = "2000";

  /**
   * The memory bound of a job's Python workers; zero is none. A job never gets workers that have another bound.
   *
   * <p>So a side shares no worker with the query. Spark ends all Python workers of a task that outlives its job, also
   * those that the task has given back and the query has by then (SPARK-54217). A bound in Spark's configuration
   * overrides this one, and the workers are shared.
   */
  private static final String WORKER_MEMORY = "resource.pyspark.memory";

  private static final String NO_BOUND = "0";

  /** By hash of a plan and setting: the time from which the plan is run again, and the pause before that, in ns. */
  private static final Map GIVEN_UP = Collections.synchronizedMap(new HashMap());

  private static final int MOST_GIVEN_UP = 10000;

  /** The next run may be fast: the first one starts Python, and waits for what the driver compiles. */
  private static final long FIRST_PAUSE_NANOSECONDS = 10L * 1000000000L;

  private static final long PAUSE_GROWS = 8;
  private static final long LONGEST_PAUSE_NANOSECONDS = 600L * 1000000000L;

  /** The rows of plans that have run, by canonical plan. Equal plans of a query have the same rows. */
  private final Map known = new HashMap();

  public static BigInteger bytes(LogicalPlan plan) {
    return plan.stats().sizeInBytes().bigInteger();
  }

  /** Whether the tables of a plan are small beside a scan's side. Spark may not know the size of other sources. */
  public static boolean isCheaper(LogicalPlan plan, LogicalPlan side) {
    BigInteger unknown = BigInteger.valueOf(SQLConf.get().defaultSizeInBytes());
    BigInteger sum = BigInteger.ZERO;
    for (LogicalPlan leaf : Lists.from(plan.collectLeaves())) {
      sum = bytes(leaf).equals(unknown) ? sum : sum.add(bytes(leaf));
    }
    return sum.multiply(LEAST_GAIN).compareTo(bytes(side)) <= 0;
  }

  /**
   * The rows of a plan.
   *
   * @param side what the keys restrict
   * @return null if there are too many rows, or they take too long
   */
  public LogicalPlan rows(LogicalPlan plan, LogicalPlan side) throws Exception {
    if (!known.containsKey(plan.canonicalized())) {
      known.put(plan.canonicalized(), run(plan, side));
    }
    return known(plan);
  }

  private LogicalPlan known(LogicalPlan plan) throws Exception {
    LocalRelation rows = (LocalRelation) known.get(plan.canonicalized());
    return rows == null ? null : relation(plan, rows.data());
  }

  private static LogicalPlan relation(LogicalPlan plan, Object rows) throws Exception {
    return (LogicalPlan) ScanTasks.made(LocalRelation.class, plan.output(), rows, Boolean.FALSE);
  }

  /** A query whose scalar subqueries have the value that runtime filters have taken. */
  public LogicalPlan consistent(LogicalPlan query) {
    return known.isEmpty() ? query : (LogicalPlan) query.transformAllExpressions(new Change(this));
  }

  public Object changed(Object node) {
    try {
      boolean isScalar = node instanceof ScalarSubquery && !((ScalarSubquery) node).isCorrelated();
      LogicalPlan rows = isScalar ? known(((ScalarSubquery) node).plan()) : null;
      return rows == null ? null : ((ScalarSubquery) node).withNewPlan(rows);
    } catch (Exception e) {
      throw new IllegalStateException(e);
    }
  }

  private static LogicalPlan run(LogicalPlan plan, LogicalPlan side) {
    long[] givenUp = (long[]) GIVEN_UP.get(name(plan));
    if (givenUp != null && System.nanoTime() - givenUp[0] < 0) {
      return null;
    }
    SparkContext context = SparkSession.active().sparkContext();
    String tag = "puffin-index-" + UUID.randomUUID();
    Timer timer = new Timer(tag, true);
    context.addJobTag(tag);
    String memory = context.getLocalProperty(WORKER_MEMORY);
    context.setLocalProperty(WORKER_MEMORY, NO_BOUND);
    try {
      long bound = bytes(side).divide(BYTES_A_MILLISECOND).min(BigInteger.valueOf(MOST_MILLISECONDS)).longValue();
      long least = Long.parseLong(setting());
      timer.schedule(new Cancel(context, tag), Math.max(least, bound), CANCEL_AGAIN_MILLISECONDS);
      Object executed =
          MethodUtils.invokeStaticMethod(
              QueryExecution.class, "prepareExecutedPlan", new Object[] {SparkSession.active(), plan});
      InternalRow[] rows = take((SparkPlan) executed, context.defaultParallelism());
      LogicalPlan relation = relation(plan, Lists.of(Arrays.asList((Object[]) rows)));
      boolean isSmall = rows.length <= MOST_ROWS && bytes(relation).compareTo(MOST_BYTES) <= 0;
      return isSmall ? relation : givenUp(plan, "it has more than " + MOST_ROWS + " rows or 64 MB", null);
    } catch (Exception e) {
      // The query runs the side itself, and tells what is wrong with it.
      return givenUp(plan, "it failed, or took longer than " + SETTING + " allows", e);
    } finally {
      timer.cancel();
      context.setLocalProperty(WORKER_MEMORY, memory);
      context.removeJobTag(tag);
    }
  }

  /** At most one row more than there may be. Spark's own take begins with one partition, and a job takes its time. */
  private static InternalRow[] take(SparkPlan plan, int most) {
    int partitions = plan.execute().getNumPartitions();
    return partitions > 1 && partitions <= most
        ? new LocalLimitExec(MOST_ROWS + 1, plan).executeCollect()
        : plan.executeTake(MOST_ROWS + 1);
  }

  private static String setting() {
    return SQLConf.get().getConfString(SETTING, DEFAULT_MILLISECONDS).trim();
  }

  private static String name(LogicalPlan plan) {
    return plan.semanticHash() + " " + setting();
  }

  private static LogicalPlan givenUp(LogicalPlan plan, String reason, Exception e) {
    if (GIVEN_UP.size() >= MOST_GIVEN_UP) {
      GIVEN_UP.clear();
    }
    long[] before = (long[]) GIVEN_UP.get(name(plan));
    long slower = before == null ? FIRST_PAUSE_NANOSECONDS : before[1] * PAUSE_GROWS;
    // A side that has too many rows has them the next time, too.
    long pause = e == null ? LONGEST_PAUSE_NANOSECONDS : Math.min(slower, LONGEST_PAUSE_NANOSECONDS);
    GIVEN_UP.put(name(plan), new long[] {System.nanoTime() + pause, pause});
    LOG.info("a side gives no keys to the scan that it is joined with: {}: {}", reason, plan.simpleString(100));
    LOG.debug("a side gives no keys", e);
    return null;
  }

  /** Ends jobs that take too long. */
  private static class Cancel extends TimerTask {
    private final SparkContext context;
    private final String tag;

    Cancel(SparkContext context, String tag) {
      this.context = context;
      this.tag = tag;
    }

    public void run() {
      context.cancelJobsWithTag(tag);
    }
  }
}
