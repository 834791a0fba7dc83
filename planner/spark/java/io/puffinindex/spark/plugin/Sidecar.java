package io.puffinindex.spark.plugin;

import io.puffinindex.spark.Settings;
import io.puffinindex.spark.Trouble;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.commons.lang3.StringUtils;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.api.python.Py4JServer;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.SparkSession;
import scala.Function1;

/**
 * The Python process that plans for an application ({@code planner/spark/sidecar.py}): started in
 * the background, watched, and started again if it ends. Its standard input tells it how to reach
 * this JVM, and ends with the JVM; on its standard output it says every second that it lives.
 */
public final class Sidecar {
  private static final int MOST_RESTARTS = 5;

  /** A process that lived so long was well: what ends it is a new trouble. */
  private static final long STEADY_NANOS = TimeUnit.MINUTES.toNanos(10);

  private static final long LOOK_MILLIS = 100;
  private static final long FAREWELL_MILLIS = 2000;

  /** Exit codes from here on stand for signals. */
  private static final int SIGNALLED = 128;

  private static volatile Sidecar current;

  private final SparkContext context;
  private final String python;
  private final long silenceNanos;
  private final long waitUntil;
  private volatile Process process;
  private long started;
  private final CompletableFuture<SparkSession> session = new CompletableFuture<>();

  /** Open once the first process is ready, or will never be. */
  private final CountDownLatch settled = new CountDownLatch(1);

  /** Open once the application has ended. */
  private final CountDownLatch over = new CountDownLatch(1);

  /** What gives a session the hook; null while no process is ready. */
  private volatile Function1<Object, Object> hook;

  private volatile String lastLine = "";

  private Sidecar(SparkContext context) {
    this.context = context;
    SparkConf conf = context.conf();
    python =
        StringUtils.firstNonEmpty(
            conf.get(Settings.PREFIX + "python", ""),
            System.getenv("PUFFIN_INDEX_PYTHON"),
            System.getenv("PYSPARK_PYTHON"),
            "python3");
    silenceNanos =
        TimeUnit.MILLISECONDS.toNanos(
            conf.getLong(Settings.PREFIX + "silence-milliseconds", 10000));
    waitUntil =
        System.nanoTime()
            + TimeUnit.MILLISECONDS.toNanos(
                conf.getLong(Settings.PREFIX + "start-milliseconds", 0));
  }

  /** Start the process of an application, and return at once. */
  public static Sidecar start(SparkContext context) {
    Sidecar sidecar = new Sidecar(context);
    current = sidecar;
    start("puffin-index sidecar", sidecar::keepRunning);
    return sidecar;
  }

  private static Thread start(String name, Runnable run) {
    Thread thread = new Thread(run, name);
    // The threads of py4j inherit this: none of them keeps a JVM alive whose program has ended.
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  /** The sidecar of the application, for its Python process. */
  public static Sidecar current() {
    return current;
  }

  /** Give a session the hook; the application's first statements may wait for it. */
  public static void hook(Object session) {
    Sidecar sidecar = current;
    if (sidecar == null) {
      return;
    }
    try {
      sidecar.settled.await(sidecar.waitUntil - System.nanoTime(), TimeUnit.NANOSECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    Function1<Object, Object> hook = sidecar.hook;
    if (hook != null) {
      hook.apply(session);
    }
  }

  /** The application's default session as soon as there is one; null if it ends before. */
  public SparkSession awaitSession() {
    return session.join();
  }

  /** Use what gives a session the hook. The process calls this once it is ready. */
  public synchronized void use(Function1<Object, Object> hook) throws Exception {
    this.hook = hook;
    settled.countDown();
    // The call may come late.
    if (isOver() || !process.isAlive()) {
      endHook();
    } else {
      Trouble.LOG.info("ready {} ms after its start", (System.nanoTime() - started) / 1000000);
    }
  }

  public void close() {
    over.countDown();
    settled.countDown();
    session.complete(null);
    Process last = process;
    if (last != null) {
      end(last);
    }
  }

  private void keepRunning() {
    try {
      // A process beside a session slows its start down; statements that wait need it sooner.
      while (!isOver() && !session.isDone() && waitUntil - System.nanoTime() <= 0) {
        lookForSession();
      }
      int restarts = 0;
      while (!isOver()) {
        String trouble = run();
        if (isOver()) {
          return;
        }
        restarts = System.nanoTime() - started > STEADY_NANOS ? 1 : restarts + 1;
        if (restarts > MOST_RESTARTS) {
          Trouble.LOG.warn(
              "queries run without the index from now on: {} {} once more", python, trouble);
          return;
        }
        long pause = 1L << (2 * (restarts - 1));
        Trouble.LOG.warn(
            "queries run without the index: {} {}; it is started again in {} s",
            python,
            trouble,
            pause);
        over.await(pause, TimeUnit.SECONDS);
      }
    } catch (HopelessException e) {
      if (!isOver()) {
        Trouble.LOG.warn(
            "no index is used: {} {}; if puffin-index is not there, set {}python to a Python that"
                + " has it",
            python,
            e.getMessage(),
            Settings.PREFIX);
      }
    } catch (Exception | LinkageError e) {
      Trouble.LOG.warn("no index is used", e);
    } finally {
      close();
    }
  }

  /** Whether the application ends, which may stop its sessions before it tells the plugin. */
  private boolean isOver() {
    return over.getCount() == 0 || context.isStopped();
  }

  /** Run a process to its end, and say what ended it. */
  private String run() throws Exception {
    // A server of its own for each process: what a process holds of this JVM goes with it.
    Py4JServer server = new Py4JServer(context.conf());
    server.start();
    try {
      Process launched = launch();
      Thread copying = start("puffin-index sidecar's standard error", () -> copyLines(launched));
      try {
        greet(launched.getOutputStream(), server);
        return watch(launched, copying);
      } finally {
        // First: a process that hangs takes its time to end.
        endHook();
        end(launched);
      }
    } finally {
      server.shutdown();
    }
  }

  private synchronized Process launch() throws HopelessException {
    try {
      started = System.nanoTime();
      // -P: a folder `planner` in the working folder of the driver is somebody else's.
      process = new ProcessBuilder(python, "-P", "-m", "planner.spark.sidecar").start();
      return process;
    } catch (IOException e) {
      throw new HopelessException("does not start: " + e.getMessage());
    }
  }

  /** Tell a process how to reach this JVM. */
  private void greet(OutputStream in, Py4JServer server) {
    String port = Integer.toString(server.getListeningPort());
    String greeting =
        String.join(
            "\n", port, server.secret(), context.version(), PythonUtils.sparkPythonPath(), "");
    try {
      in.write(greeting.getBytes(StandardCharsets.UTF_8));
      in.flush();
    } catch (IOException e) {
      Trouble.LOG.debug("the sidecar has ended", e);
    }
  }

  private String watch(Process watched, Thread copying) throws Exception {
    var signs = watched.getInputStream();
    long last = System.nanoTime();
    boolean wasReady = false;
    while (!isOver()) {
      wasReady |= hook != null;
      boolean isAlive = watched.isAlive();
      if (signs.available() > 0) {
        signs.skip(signs.available());
        last = System.nanoTime();
      } else if (!isAlive) {
        String end = "ended with code " + watched.exitValue();
        if (!wasReady && watched.exitValue() < SIGNALLED) {
          copying.join(FAREWELL_MILLIS);
          throw new HopelessException(end + (lastLine.isEmpty() ? "" : " (" + lastLine + ")"));
        }
        return end;
      } else if (System.nanoTime() - last > silenceNanos) {
        watched.destroyForcibly();
        return "did not answer for " + TimeUnit.NANOSECONDS.toMillis(silenceNanos) + " ms";
      }
      lookForSession();
    }
    return "ended with the application";
  }

  /** Look for the default session once, and wait for a moment. */
  private void lookForSession() throws InterruptedException {
    var found = SparkSession.getDefaultSession();
    if (found.isDefined() && found.get().sparkContext() == context) {
      session.complete(found.get());
    }
    over.await(LOOK_MILLIS, TimeUnit.MILLISECONDS);
  }

  private void copyLines(Process process) {
    try (BufferedReader lines = process.errorReader()) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        lastLine = line.isBlank() ? lastLine : line;
        if (line.startsWith("INFO ")) {
          Trouble.LOG.info(line);
        } else if (!isOver()) {
          Trouble.LOG.warn(line);
        }
      }
    } catch (IOException e) {
      Trouble.LOG.debug("the standard error of the sidecar ended", e);
    }
  }

  /** Take the hook away from all sessions, and let no statement wait for one. */
  private synchronized void endHook() throws Exception {
    settled.countDown();
    Function1<Object, Object> ended = hook;
    hook = null;
    if (ended != null) {
      ((AutoCloseable) ended).close();
    }
  }

  /** The end of its input ends a process; one that does not end is killed. */
  private static void end(Process process) {
    try {
      process.getOutputStream().close();
      process.waitFor(FAREWELL_MILLIS, TimeUnit.MILLISECONDS);
    } catch (IOException e) {
      Trouble.LOG.debug("the sidecar has ended", e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    process.destroyForcibly();
  }

  /** Nothing that a restart would better. */
  private static class HopelessException extends Exception {
    private static final long serialVersionUID = 1;

    HopelessException(String what) {
      super(what);
    }
  }
}
