package io.puffinindex.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.internal.SQLConf;

/** The configuration of the session that plans in this thread. */
public final class SessionSettings {
  private SessionSettings() {}

  /** A copy of the entries whose names begin with a prefix. */
  public static Map<String, String> startingWith(String prefix) {
    Map<String, String> found = new HashMap<>();
    Map<String, String> all = SQLConf.get().settings();
    // A synchronized map, which other threads may change meanwhile.
    synchronized (all) {
      found.putAll(all);
    }
    found.keySet().removeIf(name -> !name.startsWith(prefix));
    return found;
  }
}
