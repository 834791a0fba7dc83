package io.puffinindex.bench;

import io.puffinindex.spark.ScanTasks;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.FileScanTask;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;

/**
 * Perfect pruning: an optimizer rule that is told beforehand which row groups hold a match, and lets a scan read only
 * those. The rule knows nothing of any index, so its time is a bound for every index. Compiled by Janino: no generics, no
 * lambdas.
 */
public class KeepRowGroups extends Rule {
  /** Survivors (BitSet of ordinals) by location of the data file; a data file without an entry is read whole. */
  private volatile Map survivors = new HashMap();

  public String ruleName() {
    return "KeepRowGroups";
  }

  /** Take the survivors of the next queries, as `ordinal,ordinal,...` by location. */
  public void keep(Map ordinals) {
    Map next = new HashMap();
    for (Iterator it = ordinals.entrySet().iterator(); it.hasNext(); ) {
      Map.Entry entry = (Map.Entry) it.next();
      BitSet set = new BitSet();
      String[] numbers = ((String) entry.getValue()).split(",");
      for (int i = 0; i < numbers.length; i++) {
        if (numbers[i].length() > 0) {
          set.set(Integer.parseInt(numbers[i]));
        }
      }
      next.put(entry.getKey(), set);
    }
    survivors = next;
  }

  public TreeNode apply(TreeNode plan) {
    visit((LogicalPlan) plan);
    return plan;
  }

  private void visit(LogicalPlan plan) {
    if (plan instanceof DataSourceV2ScanRelation) {
      Object scan = ((DataSourceV2ScanRelation) plan).scan();
      if (ScanTasks.isBatchScan(scan)) {
        try {
          prune(scan);
        } catch (Exception e) {
          throw new IllegalStateException("perfect pruning failed: " + e, e);
        }
      }
      return;
    }
    scala.collection.Iterator children = plan.children().iterator();
    while (children.hasNext()) {
      visit((LogicalPlan) children.next());
    }
  }

  private void prune(Object scan) throws Exception {
    List tasks = ScanTasks.of(scan);
    if (tasks instanceof ScanTasks.Pruned) {
      return;
    }
    ScanTasks.Pruned pruned = new ScanTasks.Pruned(new ArrayList());
    for (Iterator it = tasks.iterator(); it.hasNext(); ) {
      FileScanTask task = (FileScanTask) it.next();
      BitSet ordinals = (BitSet) survivors.get(task.file().location());
      if (ordinals == null) {
        pruned.add(task);
      } else if (!ordinals.isEmpty()) {
        pruned.add(narrow(task, ordinals));
      }
    }
    ScanTasks.replace(scan, pruned);
  }

  private static FileScanTask narrow(FileScanTask task, BitSet ordinals) {
    List parts = new ArrayList();
    int ordinal = 0;
    for (Iterator it = task.split(1L).iterator(); it.hasNext(); ordinal++) {
      Object part = it.next();
      if (ordinals.get(ordinal)) {
        parts.add(part);
      }
    }
    return ScanTasks.narrow(task, parts);
  }
}
