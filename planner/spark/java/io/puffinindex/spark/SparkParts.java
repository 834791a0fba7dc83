package io.puffinindex.spark;

import java.util.Arrays;
import org.apache.commons.lang3.reflect.MethodUtils;
import scala.Option;

/** Parts of Spark whose class or parameters are others in some releases. */
public final class SparkParts {
  /** Spark 3.5 has one key where Spark 4 has several, and no procedures. */
  public static final boolean IS_3 =
      org.apache.spark.package$.MODULE$.SPARK_VERSION().startsWith("3.");

  static final boolean IS_4_0 =
      org.apache.spark.package$.MODULE$.SPARK_VERSION().startsWith("4.0.");

  private SparkParts() {}

  /** A part of a session, whose class is another one in Spark 3.5 than in Spark 4. */
  public static Object of(Object session, String... path) throws ReflectiveOperationException {
    Object part = session;
    for (String name : path) {
      part = MethodUtils.invokeMethod(part, name);
    }
    return part;
  }

  /** Make an object of a class whose constructor has more optional parameters in later releases. */
  public static <T> T made(Class<T> type, Object... first) {
    var constructor = type.getConstructors()[0];
    Object[] arguments = new Object[constructor.getParameterCount()];
    Arrays.fill(arguments, Option.empty());
    System.arraycopy(first, 0, arguments, 0, first.length);
    try {
      return type.cast(constructor.newInstance(arguments));
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }
}
