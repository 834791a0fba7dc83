package io.puffinindex.spark;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.Tuple2;

/** A column of a scan whose values a join or a scalar subquery tells once the query runs. */
public class AwaitedColumn {
  public final Scan scan;
  public final String column;
  /** How the column compares with the values. */
  public final String operator;
  /** The rows of the table that has the values, if that is a whole table; or null. */
  public final Long rows;
  /** What tells the values. */
  public final String source;

  /** @param found the attribute and the scan, as {@code RuntimeFilters.find} has them */
  public AwaitedColumn(Tuple2 found, String operator, Long rows, String source) {
    this(((DataSourceV2ScanRelation) found._2()).scan(), ((Attribute) found._1()).name(), operator, rows, source);
  }

  private AwaitedColumn(Scan scan, String column, String operator, Long rows, String source) {
    this.scan = scan;
    this.column = column;
    this.operator = operator;
    this.rows = rows;
    this.source = source;
  }

  /** The name of the runtime filter. */
  public String name() {
    return RuntimeScan.filterName(column, operator);
  }

  /** The same column, told by another source as well. */
  public AwaitedColumn also(AwaitedColumn other) {
    String both = source.equals(other.source) ? source : "join or subquery";
    return new AwaitedColumn(scan, column, operator, ScanQuestion.fewest(rows, other.rows), both);
  }
}
