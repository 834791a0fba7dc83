package io.puffinindex.spark;

import java.util.regex.Pattern;
import org.apache.commons.lang3.exception.ExceptionUtils;
import org.apache.spark.SparkException;

/** Tells what somebody has cancelled from trouble of ours. */
public final class Cancellation {
  /** Begins the tags of jobs that we cancel ourselves. */
  public static final String OWN_TAG = "puffin-index-side-";

  /** Spark 4 puts the name of the error before the text. */
  private static final Pattern CANCELLED =
      Pattern.compile(
          "(\\[SPARK_JOB_CANCELLED\\] )?Job \\d+ cancelled(?! part of cancelled job tags? "
              + OWN_TAG
              + ").*",
          Pattern.DOTALL);

  private Cancellation() {}

  /**
   * Throw what ended jobs or this thread, if somebody has cancelled them: that ends the query as it
   * does without us.
   */
  public static void passOn(Throwable trouble) {
    for (Throwable cause : ExceptionUtils.getThrowableList(trouble)) {
      boolean isOfJob = cause instanceof SparkException;
      String message = String.valueOf(cause.getMessage());
      if (cause instanceof InterruptedException
          || (isOfJob && CANCELLED.matcher(message).matches())) {
        ExceptionUtils.rethrow(cause);
      }
      if (isOfJob && message.startsWith("Job aborted")) {
        // What is below it, a task has thrown.
        return;
      }
    }
  }
}
