package io.puffinindex.spark;

import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;

/**
 * Adds notes on a query's scans to the description of the query's jobs. A description belongs to a thread and outlives the
 * query, so the next query that the thread plans takes the note back.
 */
public class JobNotes {
  private static final String DESCRIPTION = "spark.job.description";

  private final ThreadLocal noted = new ThreadLocal();

  /** Add a note on the query that this thread plans. */
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

  /** Take back the notes on earlier queries of this thread. */
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

  /** What identifies the query that this thread plans: the planning tracker, which all its subqueries share. */
  private static Object query() {
    scala.Option tracker = QueryPlanningTracker.get();
    return tracker.isDefined() ? tracker.get() : null;
  }
}
