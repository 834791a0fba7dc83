package io.puffinindex.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;
import org.apache.spark.sql.SparkSession;

/** Has statements executed by Python's side. */
public class PythonStatements {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final PythonCalls python;

  /** @param python executes a statement: (JSON, session) to JSON */
  public PythonStatements(BiFunction python) {
    this.python = new PythonCalls(python);
  }

  /**
   * The rows of a statement's result, each a list.
   *
   * @throws IllegalArgumentException if the statement asks for what there is not, or fails; Python shows its message
   */
  public List execute(Map<String, Object> statement) {
    try {
      String answer = (String) python.apply(JSON.writeValueAsString(statement), SparkSession.active());
      Map<String, Object> answered = (Map) JSON.readValue(answer, Map.class);
      if (answered.get("error") != null) {
        throw new IllegalArgumentException((String) answered.get("error"));
      }
      return (List) answered.get("rows");
    } catch (java.io.IOException e) {
      throw new IllegalStateException(e);
    }
  }
}
