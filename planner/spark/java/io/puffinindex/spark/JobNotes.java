package io.puffinindex.spark;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;

/**
 * Adds notes on a query's scans to the description of the query's jobs. A description belongs to a
 * thread and outlives the query, so the next query that the thread plans takes the note back.
 */
public final class JobNotes {
  private static final String DESCRIPTION = "spark.job.description";

  @SuppressWarnings("ThreadLocalUsage") // the hooks of a JVM have notes of their own
  private final ThreadLocal<Noted> noted = new ThreadLocal<>();

  /** Add a note, which may be empty. */
  public void add(String note) {
    if (note.isEmpty()) {
      return;
    }
    forgetOtherQueries();
    var context = SparkSession.active().sparkContext();
    String before = context.getLocalProperty(DESCRIPTION);
    String after = before == null || before.isEmpty() ? note : before + "; " + note;
    Noted earlier = noted.get();
    context.setLocalProperty(DESCRIPTION, after);
    noted.set(new Noted(query(), earlier == null ? before : earlier.before, after));
  }

  /** Take back the notes on earlier queries of this thread. */
  public void forgetOtherQueries() {
    Noted earlier = noted.get();
    if (earlier == null || (earlier.query != null && earlier.query == query())) {
      return;
    }
    noted.remove();
    var context = SparkSession.active().sparkContext();
    if (earlier.after.equals(context.getLocalProperty(DESCRIPTION))) {
      context.setLocalProperty(DESCRIPTION, earlier.before);
    }
  }

  /** The planning tracker of the query that this thread plans, which all its subqueries share. */
  private static QueryPlanningTracker query() {
    var tracker = QueryPlanningTracker.get();
    return tracker.isDefined() ? tracker.get() : null;
  }

  private record Noted(QueryPlanningTracker query, String before, String after) {}
}
