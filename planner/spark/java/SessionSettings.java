package io.puffinindex.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.internal.SQLConf;

/** The configuration of the session that plans in this thread. */
public class SessionSettings {
  private SessionSettings() {}

  /** A copy of the entries whose names begin with a prefix. */
  public static Map startingWith(String prefix) {
    Map<String, Object> found = new HashMap();
    Map<String, String> all = SQLConf.get().settings();
    // A synchronized map, which other threads may change meanwhile.
    synchronized (all) {
      for (Map.Entry<String, String> entry : all.entrySet()) {
        if (entry.getKey().startsWith(prefix)) {
          found.put(entry.getKey(), entry.getValue());
        }
      }
    }
    return found;
  }
}
