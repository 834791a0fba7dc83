package io.puffinindex.spark;

import io.puffinindex.spark.plugin.SessionExtensions;
import io.puffinindex.spark.plugin.Sidecar;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

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
}
