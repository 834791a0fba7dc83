package io.puffinindex.spark.commands;

import io.puffinindex.spark.Node;
import java.io.IOException;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.CatalystTypeConverters;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The catalog {@code puffin}, which has procedures and nothing else. */
public final class Procedures implements ProcedureCatalog {
  private static final String NAMESPACE = "system";

  private final IndexStatements statements;
  private final Map<String, Described> described = new LinkedHashMap<>();

  /**
   * @param described a JSON list of the procedures
   */
  public Procedures(IndexStatements statements, String described) throws IOException {
    this.statements = statements;
    for (Described one : Node.JSON.readValue(described, Described[].class)) {
      this.described.put(one.name, one);
    }
  }

  /** What Python's side tells of a procedure; parameters and columns as in CREATE TABLE. */
  record Described(String name, String description, String parameters, String columns) {}

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {}

  @Override
  public String name() {
    return "puffin";
  }

  @SuppressWarnings("MissingOverride") // Spark 4.0 does not have it
  public Identifier[] listProcedures(String[] namespace) {
    boolean isOurs =
        namespace.length == 0
            || (namespace.length == 1 && namespace[0].equalsIgnoreCase(NAMESPACE));
    return isOurs
        ? described.keySet().stream()
            .map(name -> Identifier.of(new String[] {NAMESPACE}, name))
            .toArray(Identifier[]::new)
        : new Identifier[0];
  }

  @Override
  public UnboundProcedure loadProcedure(Identifier name) {
    if (statements.rule.hasEnded()) {
      throw new Unknown("puffin-index was disabled");
    }
    Described one = described.get(name.name().toLowerCase(Locale.ROOT));
    if (one == null
        || name.namespace().length != 1
        || !name.namespace()[0].equalsIgnoreCase(NAMESPACE)) {
      String known = String.join(", ", described.keySet());
      throw new Unknown(
          "there is no procedure puffin." + name + "; there are, in puffin.system: " + known);
    }
    return new One(one, statements);
  }

  /** Spark shows the message of an error of this interface as it is. */
  private static final class Unknown extends IllegalArgumentException implements SparkThrowable {
    private static final long serialVersionUID = 1;

    Unknown(String message) {
      super(message);
    }

    @SuppressWarnings("MissingOverride") // Spark 4.0 does not have it
    public String getCondition() {
      return null;
    }

    @Override
    @Deprecated // so is Spark's, which still calls it
    @SuppressWarnings("InlineMeSuggester") // only Spark calls it
    public String getErrorClass() {
      return null;
    }
  }

  private record One(Described described, IndexStatements statements)
      implements UnboundProcedure, BoundProcedure {
    @Override
    public String name() {
      return described.name;
    }

    @Override
    public String description() {
      return described.description;
    }

    @Override
    public BoundProcedure bind(StructType arguments) {
      return this;
    }

    @Override
    public boolean isDeterministic() {
      return false;
    }

    @Override
    public ProcedureParameter[] parameters() {
      return Stream.of(StructType.fromDDL(described.parameters).fields())
          .map(One::parameter)
          .toArray(ProcedureParameter[]::new);
    }

    private static ProcedureParameter parameter(StructField one) {
      ProcedureParameter.Builder builder = ProcedureParameter.in(one.name(), one.dataType());
      // Python's side has the defaults.
      return (one.nullable() ? builder.defaultValue("NULL") : builder).build();
    }

    @Override
    public Iterator<Scan> call(InternalRow arguments) {
      StructType parameters = StructType.fromDDL(described.parameters);
      Row given = (Row) CatalystTypeConverters.convertToScala(arguments, parameters);
      Node values = Node.of();
      for (String name : parameters.fieldNames()) {
        values.put(name, given.getAs(name));
      }
      List<List<Object>> rows =
          statements.execute(Node.of("statement", "call", "name", name(), "arguments", values));
      return List.<Scan>of(new Result(StructType.fromDDL(described.columns), rows)).iterator();
    }
  }

  private record Result(StructType readSchema, List<List<Object>> found) implements LocalScan {
    @Override
    public InternalRow[] rows() {
      var convert = CatalystTypeConverters.createToCatalystConverter(readSchema);
      return found.stream()
          .map(row -> (InternalRow) convert.apply(RowFactory.create(row.toArray())))
          .toArray(InternalRow[]::new);
    }
  }
}
