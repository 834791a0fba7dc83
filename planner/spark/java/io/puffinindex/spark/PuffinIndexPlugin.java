package io.puffinindex.spark;

import io.puffinindex.spark.plugin.Sidecar;
import java.util.Map;
import org.apache.commons.lang3.reflect.MethodUtils;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import scala.Function1;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** Lets all sessions of an application use indexes: {@code spark.plugins}. */
public class PuffinIndexPlugin implements SparkPlugin, DriverPlugin {
  private static final String EXTENSIONS = "spark.sql.extensions";

  private Sidecar sidecar;

  @Override
  public DriverPlugin driverPlugin() {
    return this;
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return null;
  }

  @Override
  public Map<String, String> init(SparkContext context, PluginContext plugin) {
    // Sessions, which come later than a context, ask the application for their extensions.
    String others = context.conf().get(EXTENSIONS, "");
    context
        .conf()
        .set(
            EXTENSIONS, (others.isEmpty() ? "" : others + ",") + SessionExtensions.class.getName());
    sidecar = Sidecar.start(context);
    return Map.of();
  }

  @Override
  public void shutdown() {
    if (sidecar != null) {
      sidecar.close();
    }
  }

  /** Gives each session the hook of the sidecar before its statements are looked at. */
  public static final class SessionExtensions
      extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
    @Override
    public BoxedUnit apply(SparkSessionExtensions extensions) {
      Function1<Object, Rule<LogicalPlan>> rules =
          session -> new Hook.Unchanging(() -> Sidecar.hook(session));
      try {
        // Rules of hints run before procedures are looked for. Spark 3.5 has neither.
        String first = "injectHintResolutionRule";
        boolean hasFirst =
            MethodUtils.getAccessibleMethod(extensions.getClass(), first, Function1.class) != null;
        MethodUtils.invokeMethod(extensions, hasFirst ? first : "injectResolutionRule", rules);
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
      return BoxedUnit.UNIT;
    }
  }
}
