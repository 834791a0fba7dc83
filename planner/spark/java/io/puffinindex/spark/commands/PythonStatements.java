package io.puffinindex.spark.commands;

import io.puffinindex.spark.Node;
import io.puffinindex.spark.PythonCalls;
import java.io.IOException;
import java.util.List;
import java.util.function.BiFunction;
import org.apache.spark.sql.SparkSession;

/** Has statements executed by Python's side. */
public final class PythonStatements {
  private final PythonCalls<String, SparkSession, String> python;

  public PythonStatements(BiFunction<String, SparkSession, String> python) {
    this.python = new PythonCalls<>(python);
  }

  /** The rows of a statement's result; the message of an IllegalArgumentException is for people. */
  public List<List<Object>> execute(Node statement) {
    try {
      String text = python.apply(Node.JSON.writeValueAsString(statement), SparkSession.active());
      Answer answer = Node.JSON.readValue(text, Answer.class);
      if (answer.error != null) {
        throw new IllegalArgumentException(answer.error);
      }
      return answer.rows;
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
  }

  record Answer(String error, List<List<Object>> rows) {}
}
