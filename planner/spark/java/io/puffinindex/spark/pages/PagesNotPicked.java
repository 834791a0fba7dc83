package io.puffinindex.spark.pages;

import io.puffinindex.spark.Lists;
import io.puffinindex.spark.Trouble;
import java.util.List;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.AccumulableInfo;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.util.CollectionAccumulator;

/**
 * Logs on the driver why executors could not pick the pages of data files, and read all rows of the
 * row groups instead. An accumulator of Spark's brings it, as the driver could not load a class of
 * this jar from the result of a task.
 */
final class PagesNotPicked extends SparkListener {
  private static final String NAME = "puffin-index: pages not picked";

  /** More lines of one scan say nothing new: a table may have many such files. */
  private static final int MOST_LINES = 10;

  /** The application that has a listener. */
  private static String application;

  private PagesNotPicked() {}

  /** Where the tasks of one scan say what they could not do. */
  static synchronized CollectionAccumulator<String> ofScan() {
    SparkContext context = SparkContext.getOrCreate();
    if (!context.applicationId().equals(application)) {
      context.addSparkListener(new PagesNotPicked());
      application = context.applicationId();
    }
    return context.collectionAccumulator(NAME);
  }

  /** Log why all rows of a file are read, on this executor, and let the driver know. */
  static void tell(CollectionAccumulator<String> notPicked, String location, Throwable trouble) {
    Trouble.LOG.warn(
        "pages not picked, all rows of the row groups are read: {}", location, trouble);
    notPicked.add(location + ": " + trouble);
  }

  @Override
  public void onTaskEnd(SparkListenerTaskEnd end) {
    for (AccumulableInfo one : Lists.from(end.taskInfo().accumulables())) {
      if (one.name().contains(NAME)
          && one.update().get() instanceof List<?> troubles
          && one.value().get() instanceof List<?> ofScan
          && ofScan.size() - troubles.size() < MOST_LINES) {
        for (Object trouble : troubles) {
          Trouble.LOG.warn(
              "pages not picked on an executor, all rows of the row groups were read: {}", trouble);
        }
      }
    }
  }
}
