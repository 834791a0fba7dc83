package io.puffinindex.spark;

import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;

/**
 * Says in the description of a query's jobs what was kept of its scans. Descriptions belong to a thread and stay, so the
 * note of a query is taken back when the next query is planned.
 */
public class JobNotes {
  private static final String DESCRIPTION = "spark.job.description";

  private final ThreadLocal noted = new ThreadLocal();

  /** Add a note to the query that is being planned. */
  public void add(String note) {
    forgetOtherQueries();
    SparkContext context = SparkSession.active().sparkContext();
    String before = context.getLocalProperty(DESCRIPTION);
    String after = before == null || before.length() == 0 ? note : before + "; " + note;
    Object[] state = (Object[]) noted.get();
    String original = state == null ? before : (String) state[1];
    context.setLocalProperty(DESCRIPTION, after);
    noted.set(new Object[] {query(), original, after});
  }

  /** Take back what was noted of another query than the one that is being planned. */
  public void forgetOtherQueries() {
    Object[] state = (Object[]) noted.get();
    if (state == null || (state[0] != null && state[0] == query())) {
      return;
    }
    noted.remove();
    SparkContext context = SparkSession.active().sparkContext();
    if (state[2].equals(context.getLocalProperty(DESCRIPTION))) {
      context.setLocalProperty(DESCRIPTION, (String) state[1]);
    }
  }

  /** A query has one planning tracker, which its subqueries share. */
  private static Object query() {
    scala.Option tracker = QueryPlanningTracker.get();
    return tracker.isDefined() ? tracker.get() : null;
  }
}
