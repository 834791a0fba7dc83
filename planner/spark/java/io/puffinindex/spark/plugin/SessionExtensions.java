package io.puffinindex.spark.plugin;

import org.apache.commons.lang3.reflect.MethodUtils;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import scala.Function1;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** Gives each session the hook of the sidecar before its statements are looked at. */
public class SessionExtensions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    Function1<Object, Rule<LogicalPlan>> rules = HookBeforeStatement::new;
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

  private static class HookBeforeStatement extends Rule<LogicalPlan> {
    private final Object session;

    HookBeforeStatement(Object session) {
      this.session = session;
    }

    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      Sidecar.hook(session);
      return plan;
    }
  }
}
