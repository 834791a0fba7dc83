package io.puffinindex.spark;

import java.lang.reflect.Constructor;
import java.util.Arrays;
import org.apache.commons.lang3.reflect.MethodUtils;
import scala.Option;

/** Parts of Spark whose class or parameters are others in some releases. */
public final class SparkParts {
  private SparkParts() {}

  /** A part of a session, whose class is another one in Spark 3.5 than in Spark 4. */
  public static Object of(Object session, String... path) throws ReflectiveOperationException {
    Object part = session;
    for (String name : path) {
      part = MethodUtils.invokeMethod(part, name);
    }
    return part;
  }

  /**
   * Make an object of a class whose only constructor has more parameters in later releases, all of
   * them optional.
   */
  public static <T> T made(Class<T> type, Object... first) throws ReflectiveOperationException {
    Constructor<?> constructor = type.getConstructors()[0];
    Object[] arguments = new Object[constructor.getParameterCount()];
    Arrays.fill(arguments, Option.empty());
    System.arraycopy(first, 0, arguments, 0, first.length);
    return type.cast(constructor.newInstance(arguments));
  }
}
