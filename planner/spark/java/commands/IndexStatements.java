package io.puffinindex.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.BaseMetadataTable;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.spark.sql.catalyst.analysis.FieldName;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.plans.logical.CreateIndex;
import org.apache.spark.sql.catalyst.plans.logical.DropIndex;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.index.SupportsIndex;
import org.apache.spark.sql.connector.catalog.index.TableIndex;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.execution.PlanLater;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.types.StructType;
import scala.Tuple2;
import scala.collection.JavaConverters;

/**
 * A planning strategy for CREATE INDEX and DROP INDEX on Iceberg tables.
 *
 * <p>Spark has commands for both, but only for tables that support indexes, as Iceberg's do not. So the strategy puts a
 * table that does into the statement, and Spark plans it anew. The command asks Python's side when it is executed, and
 * not when it is planned or explained.
 */
public class IndexStatements extends SparkStrategy {
  private final PruneScans rule;
  private final PythonStatements python;

  public IndexStatements(PruneScans rule, PythonStatements python) {
    this.rule = rule;
    this.python = python;
  }

  public scala.collection.immutable.Seq apply(LogicalPlan plan) {
    List plans = new ArrayList();
    if ((plan instanceof CreateIndex || plan instanceof DropIndex) && !rule.hasEnded()) {
      LogicalPlan child = (LogicalPlan) plan.children().head();
      if (child instanceof ResolvedTable && isData(((ResolvedTable) child).table())) {
        ResolvedTable table = (ResolvedTable) child;
        Map<String, Object> statement =
            plan instanceof CreateIndex ? create((CreateIndex) plan) : drop((DropIndex) plan);
        List name = new ArrayList(Arrays.asList(table.identifier().namespace()));
        name.add(table.identifier().name());
        statement.put("catalog", table.catalog().name());
        statement.put("table", name);
        ResolvedTable indexed =
            new ResolvedTable(
                table.catalog(),
                table.identifier(),
                new IndexedTable(table.table(), statement, python),
                table.outputAttributes());
        LogicalPlan changed = (LogicalPlan) plan.withNewChildren(Lists.of(Collections.singletonList(indexed)));
        plans.add(new PlanLater(changed));
      }
    }
    return Lists.of(plans);
  }

  private static boolean isData(Table table) {
    return table instanceof SparkTable && !(((SparkTable) table).table() instanceof BaseMetadataTable);
  }

  private static Map<String, Object> create(CreateIndex plan) {
    List columns = new ArrayList();
    for (Tuple2<FieldName, scala.collection.immutable.Map<String, String>> found : Lists.from(plan.columns())) {
      Object path = Lists.from(((FieldName) found._1()).name());
      columns.add(Lists.map("path", path, "options", options((scala.collection.Map) found._2())));
    }
    return Lists.map(
        "statement", "create",
        "name", plan.indexName(),
        "kind", plan.indexType(),
        "if_not_exists", plan.ignoreIfExists(),
        "columns", columns,
        "options", options(plan.properties()));
  }

  private static Map<String, Object> drop(DropIndex plan) {
    return Lists.map("statement", "drop", "name", plan.indexName(), "if_exists", plan.ignoreIfNotExists());
  }

  private static Map options(scala.collection.Map options) {
    return new LinkedHashMap(JavaConverters.mapAsJavaMap(options));
  }

  /** A table whose indexes Python's side makes and drops, for one statement. */
  public static class IndexedTable implements SupportsIndex {
    private final Table table;
    private final Map<String, Object> statement;
    private final PythonStatements python;

    public IndexedTable(Table table, Map<String, Object> statement, PythonStatements python) {
      this.table = table;
      this.statement = statement;
      this.python = python;
    }

    public String name() {
      return table.name();
    }

    public StructType schema() {
      return table.schema();
    }

    public Set capabilities() {
      return table.capabilities();
    }

    /** Spark's arguments are a map by column, in which a second key of a map column would replace the first. */
    public void createIndex(String name, NamedReference[] columns, Map columnOptions, Map options) {
      python.execute(statement);
    }

    public void dropIndex(String name) {
      python.execute(statement);
    }

    public boolean indexExists(String name) {
      return statement.get("statement").equals("drop");
    }

    public TableIndex[] listIndexes() {
      return new TableIndex[0];
    }

    public String toString() {
      return table.toString();
    }
  }
}
