package io.puffinindex.spark.commands;

import io.puffinindex.spark.Lists;
import io.puffinindex.spark.Node;
import io.puffinindex.spark.PruneScans;
import io.puffinindex.spark.PythonCalls;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BiFunction;
import org.apache.iceberg.BaseMetadataTable;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.plans.logical.CreateIndex;
import org.apache.spark.sql.catalyst.plans.logical.DropIndex;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.index.SupportsIndex;
import org.apache.spark.sql.connector.catalog.index.TableIndex;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.execution.PlanLater;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.types.StructType;

/**
 * A planning strategy for CREATE INDEX and DROP INDEX on Iceberg tables.
 *
 * <p>Spark has commands for both, but only for tables that support indexes, as Iceberg's do not. So
 * the strategy puts a table that does into the statement, and Spark plans it anew. The command asks
 * Python's side when it is executed, and not when it is planned or explained.
 */
public final class IndexStatements extends SparkStrategy {
  final PruneScans rule;
  private final PythonCalls<String, SparkSession, String> python;

  public IndexStatements(PruneScans rule, BiFunction<String, SparkSession, String> python) {
    this.rule = rule;
    this.python = new PythonCalls<>(python);
  }

  /** The rows of a statement's result; the message of an IllegalArgumentException is for people. */
  List<List<Object>> execute(Node statement) {
    try {
      String text = python.apply(Node.JSON.writeValueAsString(statement), SparkSession.active());
      Answer answer = Node.JSON.readValue(text, Answer.class);
      if (answer.error != null) {
        throw new IllegalArgumentException(answer.error);
      }
      return answer.rows;
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
  }

  record Answer(String error, List<List<Object>> rows) {}

  @Override
  public scala.collection.immutable.Seq<SparkPlan> apply(LogicalPlan plan) {
    Node statement =
        plan instanceof CreateIndex create
            ? create(create)
            : plan instanceof DropIndex drop ? drop(drop) : null;
    if (statement == null
        || rule.hasEnded()
        || !(plan.children().head() instanceof ResolvedTable table)
        || !isData(table.table())) {
      return Lists.of();
    }
    List<String> name = new ArrayList<>(Arrays.asList(table.identifier().namespace()));
    name.add(table.identifier().name());
    statement.put("catalog", table.catalog().name());
    statement.put("table", name);
    LogicalPlan indexed =
        new ResolvedTable(
            table.catalog(),
            table.identifier(),
            new IndexedTable(table.table(), statement, this),
            table.outputAttributes());
    return Lists.of(new PlanLater(plan.withNewChildren(Lists.of(indexed))));
  }

  private static boolean isData(Table table) {
    return table instanceof SparkTable spark && !(spark.table() instanceof BaseMetadataTable);
  }

  private static Node create(CreateIndex plan) {
    List<Object> columns = new ArrayList<>();
    for (var column : Lists.from(plan.columns())) {
      List<String> path = Lists.from(column._1().name());
      columns.add(Node.of("path", path, "options", options(column._2())));
    }
    return Node.of(
        "statement", "create",
        "name", plan.indexName(),
        "kind", plan.indexType(),
        "if_not_exists", plan.ignoreIfExists(),
        "columns", columns,
        "options", options(plan.properties()));
  }

  private static Node drop(DropIndex plan) {
    return Node.of(
        "statement", "drop", "name", plan.indexName(), "if_exists", plan.ignoreIfNotExists());
  }

  private static Map<String, String> options(scala.collection.Map<String, String> options) {
    Map<String, String> copied = new LinkedHashMap<>();
    Lists.from(options).forEach(entry -> copied.put(entry._1(), entry._2()));
    return copied;
  }

  /** A table whose indexes Python's side makes and drops, for one statement. */
  private record IndexedTable(Table table, Node statement, IndexStatements statements)
      implements SupportsIndex {
    @Override
    public String name() {
      return table.name();
    }

    @Override
    @Deprecated // so is Spark's, which has no default for what replaces it
    public StructType schema() {
      return table.schema();
    }

    @Override
    public Set<TableCapability> capabilities() {
      return table.capabilities();
    }

    /** Spark's map by column has room for one key of a map column only. */
    @Override
    public void createIndex(
        String name,
        NamedReference[] columns,
        Map<NamedReference, Map<String, String>> columnOptions,
        Map<String, String> options) {
      statements.execute(statement);
    }

    @Override
    public void dropIndex(String name) {
      statements.execute(statement);
    }

    @Override
    public boolean indexExists(String name) {
      return statement.get("statement").equals("drop");
    }

    @Override
    public TableIndex[] listIndexes() {
      return new TableIndex[0];
    }

    @Override
    public String toString() {
      return table.toString();
    }
  }
}
