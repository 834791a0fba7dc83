package io.puffinindex.spark;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** An object of what crosses to the planner as JSON. */
public final class Node extends LinkedHashMap<String, Object> {
  public static final ObjectMapper JSON =
      new ObjectMapper().enable(DeserializationFeature.USE_LONG_FOR_INTS);

  private static final long serialVersionUID = 1;

  private Node(Map<String, Object> entries) {
    super(entries);
  }

  /** An object of names and values, one after the other. */
  public static Node of(Object... entries) {
    Node node = new Node(Map.of());
    for (int i = 0; i < entries.length; i += 2) {
      node.put((String) entries[i], entries[i + 1]);
    }
    return node;
  }

  public Node with(String name, Object value) {
    Node node = new Node(this);
    node.put(name, value);
    return node;
  }

  public boolean is(String kind) {
    return kind.equals(get("node"));
  }

  public boolean isTrue(String name) {
    return (Boolean) get(name);
  }

  public Integer field() {
    return (Integer) get("field");
  }

  /** Iceberg's name of the type of a column or of a literal. */
  public String type() {
    return (String) get("type");
  }

  public String path() {
    return ((List<?>) get("path")).stream().map(String::valueOf).collect(Collectors.joining("."));
  }
}
