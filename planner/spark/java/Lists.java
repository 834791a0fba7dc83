package io.puffinindex.spark;

import java.util.List;
import org.apache.spark.api.python.PythonUtils;

/** Scala's lists. */
public class Lists {
  private Lists() {}

  /** An immutable list, which is a Seq in both Scala 2.12 and 2.13. */
  public static scala.collection.immutable.List of(List items) {
    return ((scala.collection.Iterable) PythonUtils.toSeq(items)).toList();
  }
}
