package io.puffinindex.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.internal.SQLConf;

/**
 * This project's settings in the session that plans, as text. The planner reads all of them and
 * refuses wrong values. This side looks at those that must work while the planner does not answer,
 * or that save a question.
 */
public record Settings(Map<String, String> entries) {
  public static final String PREFIX = "spark.puffin-index.";

  public static Settings ofSession() {
    return new Settings(startingWith(PREFIX));
  }

  /** A copy of the session's configuration, as far as names begin with a prefix. */
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

  public String get(String name, String otherwise) {
    return entries.getOrDefault(PREFIX + name, otherwise).trim();
  }

  public boolean says(String name, String value) {
    return get(name, "").equalsIgnoreCase(value);
  }
}
