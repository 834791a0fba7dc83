package io.puffinindex.spark.functions;

import java.lang.management.ManagementFactory;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Evaluates expressions for values of the index in a thread of its own. A regular expression may
 * take years for a value that no row of the answer has, and nothing stops it, so its thread is
 * given up. Errors end the evaluation only.
 */
public final class Evaluation<T> {
  private static final int MOST_GIVEN_UP = 2;
  private static final long MOST_CPU_NANOS_A_VALUE = 200000000L;
  private static final int MILLIS_BETWEEN_LOOKS = 20;
  private static final int MOST_BYTES = 4096;
  private static final Set<Thread> GIVEN_UP = ConcurrentHashMap.newKeySet();

  private volatile long values;
  private volatile boolean isGivenUp;
  private boolean wasBegun = true;
  private T result;

  private final Function<Runnable, T> evaluate;

  public Evaluation(Function<Runnable, T> evaluate) {
    this.evaluate = evaluate;
  }

  @SuppressWarnings("NonAtomicVolatileUpdate") // one thread counts
  private void next() {
    if (isGivenUp) {
      throw new CancellationException("the evaluation takes too long");
    }
    values++;
  }

  /** Whether a value is too long to be tried: time and depth of many functions grow with it. */
  public static boolean isLong(Object value) {
    return value instanceof UTF8String text
        ? text.numBytes() > MOST_BYTES
        : value instanceof byte[] bytes && bytes.length > MOST_BYTES;
  }

  /** The result; empty if it takes longer than to a {@code System.nanoTime()}, or fails. */
  public Optional<T> result(long deadline) {
    GIVEN_UP.removeIf(given -> !given.isAlive());
    if (GIVEN_UP.size() >= MOST_GIVEN_UP || System.nanoTime() > deadline) {
      wasBegun = false;
      return Optional.empty();
    }
    // A new thread has the session of the thread that makes it.
    Thread thread = new Thread(this::run, "puffin-index-evaluation");
    thread.setDaemon(true);
    thread.start();
    long known = -1;
    long cpu = 0;
    try {
      for (thread.join(MILLIS_BETWEEN_LOOKS); thread.isAlive(); thread.join(MILLIS_BETWEEN_LOOKS)) {
        long used = ManagementFactory.getThreadMXBean().getThreadCpuTime(thread.getId());
        if (values == 0 || values != known) {
          known = values;
          cpu = used;
        }
        if (used - cpu > MOST_CPU_NANOS_A_VALUE || System.nanoTime() > deadline) {
          giveUp(thread);
          return Optional.empty();
        }
      }
    } catch (InterruptedException e) {
      giveUp(thread);
      Thread.currentThread().interrupt();
      wasBegun = false;
      return Optional.empty();
    }
    return Optional.ofNullable(result);
  }

  /** Whether the evaluation was neither left out nor interrupted, so that its failure counts. */
  public boolean wasBegun() {
    return wasBegun;
  }

  private void run() {
    try {
      result = evaluate.apply(this::next);
    } catch (Throwable e) {
      result = null;
    }
  }

  private void giveUp(Thread thread) {
    isGivenUp = true;
    GIVEN_UP.add(thread);
  }
}
