package io.puffinindex.spark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ListQuery;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.RowLevelWrite;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;

/**
 * The subqueries in the expressions of a query, those within other subqueries included.
 *
 * <p>Spark optimises each subquery on its own, and may then merge scalar subqueries into one: two
 * that differ only in what stands above their scans would share one scan. Later, when the rules of
 * users run on the whole query, nothing is merged any more, and each scalar subquery is a query of
 * its own.
 */
public final class Subqueries {
  /** Plans of scalar subqueries that run by themselves and share no scan with the query. */
  public final List<LogicalPlan> whole = new ArrayList<>();

  /** Plans of the other subqueries: only the filters of their scans themselves count. */
  public final List<LogicalPlan> others = new ArrayList<>();

  /** Plans that find the files that a copy-on-write statement rewrites; each runs by itself. */
  public final List<LogicalPlan> files = new ArrayList<>();

  /** The scans of whole subqueries that stand in others as well, where other rows may be wanted. */
  public final Set<Scan> shared = identitySet();

  private final Set<LogicalPlan> known = new HashSet<>();
  private final Set<Scan> outer;
  private final Set<Scan> inner = identitySet();

  public Subqueries(LogicalPlan query) {
    outer = scans(query);
    collect(query, true);
  }

  public boolean isWhole(LogicalPlan plan) {
    return known.contains(plan);
  }

  private void collect(LogicalPlan plan, boolean mayBeWhole) {
    // MERGE, UPDATE and DELETE have their condition twice, and may give its subqueries other plans.
    boolean isRead = mayBeWhole && !(plan instanceof RowLevelWrite);
    for (Expression root : Lists.from(plan.expressions())) {
      for (SubqueryExpression subquery : Lists.nodes(root, SubqueryExpression.class)) {
        LogicalPlan own = subquery.plan();
        boolean isWhole = isRead && isScalar(subquery) && add(own);
        if (isOfFiles(root, subquery)) {
          files.add(own);
        } else if (!isWhole) {
          others.add(own);
        }
        collect(own, isWhole);
      }
    }
    for (LogicalPlan child : Lists.from(plan.children())) {
      collect(child, isRead);
    }
  }

  private static boolean isOfFiles(Expression root, SubqueryExpression subquery) {
    return subquery instanceof ListQuery
        && Lists.nodes(root, DynamicPruningExpression.class).stream()
            .anyMatch(pruning -> Lists.nodes(pruning, ListQuery.class).contains(subquery));
  }

  private static boolean isScalar(Expression expression) {
    return expression instanceof ScalarSubquery scalar && !scalar.isCorrelated();
  }

  /** Take a plan as whole, unless a scan of it stands elsewhere; a plan at two places is one. */
  private boolean add(LogicalPlan plan) {
    Set<Scan> own = scans(plan);
    if (known.contains(plan) && inner.containsAll(own)) {
      return true;
    }
    if (!Collections.disjoint(own, inner)) {
      shared.addAll(own);
      return false;
    }
    if (!Collections.disjoint(own, outer)) {
      return false;
    }
    inner.addAll(own);
    known.add(plan);
    whole.add(plan);
    return true;
  }

  private static Set<Scan> scans(LogicalPlan plan) {
    Set<Scan> scans = identitySet();
    Lists.nodes(plan, DataSourceV2ScanRelation.class)
        .forEach(relation -> scans.add(relation.scan()));
    return scans;
  }

  /** A set of scans, of which equal ones are several. */
  public static Set<Scan> identitySet() {
    return Collections.newSetFromMap(new IdentityHashMap<>());
  }
}
