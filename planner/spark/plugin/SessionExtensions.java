package io.puffinindex.spark;

import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import scala.Function1;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** Gives each session the hook of the sidecar, if there is one, before each of its statements is looked at. */
public class SessionExtensions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  @Override
  @SuppressWarnings({"unchecked", "rawtypes"}) // the class of a session is another one in Spark 3.5 than in Spark 4
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    Function1 rules =
        new AbstractFunction1() {
          @Override
          public Object apply(Object session) {
            return new HookBeforeStatement(session);
          }
        };
    try {
      // These rules run first, before a procedure is looked for in the catalogs of the session.
      extensions.injectHintResolutionRule(rules);
    } catch (NoSuchMethodError e) {
      // Spark 3.5 has no procedures.
      extensions.injectResolutionRule(rules);
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
