package io.puffinindex.spark;

import java.util.regex.Pattern;
import org.apache.commons.lang3.exception.ExceptionUtils;
import org.apache.spark.SparkException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Trouble on this side, which stops no query, unless the session is strict; and the log. */
public final class Trouble {
  /** Begins the tags of jobs that we cancel ourselves. */
  public static final String OWN_TAG = "puffin-index-side-";

  public static final Logger LOG = LoggerFactory.getLogger("puffin-index");

  /** Spark 4 puts the name of the error before the text. */
  private static final Pattern CANCELLED =
      Pattern.compile(
          "(\\[SPARK_JOB_CANCELLED\\] )?Job \\d+ cancelled(?! part of cancelled job tags? "
              + OWN_TAG
              + ").*",
          Pattern.DOTALL);

  private Trouble() {}

  /** Log trouble; fail the query of a strict session, and one that somebody has cancelled. */
  public static void tell(boolean isStrict, String what, Throwable trouble) {
    passOn(trouble);
    if (isStrict) {
      throw new IllegalStateException("puffin-index: " + trouble.getMessage(), trouble);
    }
    if (!(trouble instanceof PythonCalls.Unreachable unreachable)) {
      LOG.warn(what, trouble);
    } else if (unreachable.isNews) {
      LOG.warn("no index is used: {}", trouble.getMessage());
    }
  }

  /** Throw what shows that somebody has cancelled jobs or this thread: the query ends with it. */
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
