package io.puffinindex.spark;

import java.lang.reflect.Proxy;
import java.util.function.BiFunction;
import org.apache.commons.lang3.reflect.FieldUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import py4j.ClientServerConnection;
import py4j.Gateway;
import py4j.PythonClient;

/**
 * Calls a function of Python, and leaves nothing behind for the calling thread.
 *
 * <p>py4j opens a connection for each thread that calls Python, and keeps the connection, with a
 * thread of Python, when the calling thread has ended. Spark starts threads for broadcasts and
 * subqueries again and again.
 */
public final class PythonCalls<A, B, R> {
  private static final Logger LOG = LoggerFactory.getLogger("puffin-index");

  private final BiFunction<A, B, R> function;

  /** Null where py4j closes idle connections itself. */
  private final PythonClient client;

  /**
   * @param function a proxy that py4j has made
   */
  public PythonCalls(BiFunction<A, B, R> function) {
    this.function = function;
    this.client = clientOf(function);
  }

  private static PythonClient clientOf(Object function) {
    try {
      Object gateway = FieldUtils.readField(Proxy.getInvocationHandler(function), "gateway", true);
      return ((Gateway) gateway).getCallbackClient() instanceof PythonClient client ? client : null;
    } catch (Exception e) {
      LOG.debug("connections to Python stay open", e);
      return null;
    }
  }

  /** Call the function. */
  public R apply(A first, B second) {
    if (client == null || isOpen(client.getPerThreadConnection())) {
      return function.apply(first, second);
    }
    try {
      return function.apply(first, second);
    } finally {
      ClientServerConnection opened = client.getPerThreadConnection();
      if (isOpen(opened)) {
        opened.shutdown();
        client.connectionStopped(opened);
      }
    }
  }

  private static boolean isOpen(ClientServerConnection connection) {
    return connection != null && connection.getSocket() != null;
  }
}
