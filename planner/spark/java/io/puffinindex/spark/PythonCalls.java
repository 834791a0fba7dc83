package io.puffinindex.spark;

import java.io.IOException;
import java.lang.reflect.Proxy;
import java.net.Socket;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BiFunction;
import org.apache.commons.lang3.exception.ExceptionUtils;
import org.apache.commons.lang3.reflect.FieldUtils;
import py4j.ClientServerConnection;
import py4j.Gateway;
import py4j.PythonClient;

/**
 * Calls a function of Python over a connection of its own, and leaves nothing behind for the
 * calling thread.
 *
 * <p>py4j itself calls back over the connection that Python has called this thread by. A call that
 * fails in Python before it is read to its end, such as one of a function that is no longer known,
 * leaves its rest there, and then fails the query, too. For other threads, py4j opens a connection
 * each and keeps it, with a thread of Python, when the calling thread has ended. Spark starts
 * threads for broadcasts and subqueries again and again.
 */
public final class PythonCalls<A, B, R> {
  private final BiFunction<A, B, R> function;
  private final Gateway gateway;
  private final AtomicBoolean isUnreachable = new AtomicBoolean();

  public PythonCalls(BiFunction<A, B, R> function) {
    this.function = function;
    try {
      Object handler = Proxy.getInvocationHandler(function);
      gateway = (Gateway) FieldUtils.readField(handler, "gateway", true);
    } catch (IllegalAccessException e) {
      throw new IllegalArgumentException(e);
    }
  }

  /** Call the function, and throw what it returns if that is an exception of Java's. */
  @SuppressWarnings("unchecked") // Python returns an R, or an exception
  public R apply(A first, B second) {
    // Each callback server has its own client; one without pinned threads closes connections.
    Object answer =
        gateway.getCallbackClient() instanceof PythonClient client
            ? apply(client, first, second)
            : function.apply(first, second);
    return answer instanceof Throwable raised ? ExceptionUtils.rethrow(raised) : (R) answer;
  }

  private Object apply(PythonClient client, A first, B second) {
    ClientServerConnection callers = client.getPerThreadConnection();
    ClientServerConnection own = connection(client);
    client.setPerThreadConnection(own);
    try {
      return function.apply(first, second);
    } finally {
      client.setPerThreadConnection(callers);
      if (own.getSocket() != null) {
        own.shutdown();
      }
      client.connectionStopped(own);
    }
  }

  private ClientServerConnection connection(PythonClient client) {
    try {
      Socket socket = new Socket(client.getAddress(), client.getPort());
      ClientServerConnection opened =
          new ClientServerConnection(
              gateway, socket, null, client, client.getJavaServer(), client.getReadTimeout());
      opened.setInitiatedFromClient(true);
      isUnreachable.set(false);
      return opened;
    } catch (IOException e) {
      throw new Unreachable(e, !isUnreachable.getAndSet(true));
    }
  }

  /** Nobody answers where Python's callback server was. */
  public static final class Unreachable extends IllegalArgumentException {
    private static final long serialVersionUID = 1;

    /** Whether somebody answered the last time. */
    public final boolean isNews;

    Unreachable(IOException cause, boolean isNews) {
      super(
          "Python does not answer ("
              + cause.getMessage()
              + "): if other code has shut down py4j's callback server, planner.enable(spark)"
              + " starts it again",
          cause);
      this.isNews = isNews;
    }
  }
}
