package io.puffinindex.spark.commands;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.puffinindex.spark.Node;
import io.puffinindex.spark.PruneScans;
import java.io.IOException;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;

/** The catalog {@code puffin}, which has procedures and nothing else. */
public final class Procedures implements ProcedureCatalog {
  private static final String NAMESPACE = "system";

  private final PruneScans rule;
  private final PythonStatements python;

  /** By name. */
  private final Map<String, Described> described = new LinkedHashMap<>();

  /**
   * @param described a JSON list of the procedures
   */
  public Procedures(PruneScans rule, PythonStatements python, String described) throws IOException {
    this.rule = rule;
    this.python = python;
    for (Described one : new ObjectMapper().readValue(described, Described[].class)) {
      this.described.put(one.name, one);
    }
  }

  /** What Python's side tells of a procedure. */
  record Described(
      String name, String description, List<Column> parameters, List<Column> columns) {}

  /**
   * A parameter, or a column of the result.
   *
   * @param type as in SQL
   * @param required of a parameter
   */
  record Column(String name, String type, boolean required) {
    DataType dataType() {
      return DataType.fromDDL(type);
    }
  }

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
    if (rule.hasEnded()) {
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
    return new One(one, python);
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

  /** One procedure. */
  private record One(Described described, PythonStatements python)
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
      return described.parameters.stream().map(One::parameter).toArray(ProcedureParameter[]::new);
    }

    private static ProcedureParameter parameter(Column one) {
      ProcedureParameter.Builder builder = ProcedureParameter.in(one.name, one.dataType());
      // Python's side has the defaults.
      return (one.required ? builder : builder.defaultValue("NULL")).build();
    }

    @Override
    public Iterator<Scan> call(InternalRow arguments) {
      Node values = Node.of();
      for (int i = 0; i < described.parameters.size(); i++) {
        Column one = described.parameters.get(i);
        Object value = arguments.isNullAt(i) ? null : arguments.get(i, one.dataType());
        values.put(one.name, value instanceof UTF8String ? value.toString() : value);
      }
      List<List<Object>> rows =
          python.execute(Node.of("statement", "call", "name", name(), "arguments", values));
      return List.<Scan>of(new Result(described.columns, rows)).iterator();
    }
  }

  /** The rows of a result. */
  private record Result(List<Column> columns, List<List<Object>> found) implements LocalScan {
    @Override
    public StructType readSchema() {
      StructType schema = new StructType();
      for (Column column : columns) {
        schema = schema.add(column.name, column.dataType());
      }
      return schema;
    }

    @Override
    public InternalRow[] rows() {
      return found.stream().map(this::row).toArray(InternalRow[]::new);
    }

    private InternalRow row(List<Object> row) {
      Object[] values = new Object[columns.size()];
      for (int i = 0; i < values.length; i++) {
        values[i] = value(row.get(i), columns.get(i).dataType());
      }
      return new GenericInternalRow(values);
    }

    private static Object value(Object value, DataType type) {
      if (value == null) {
        return null;
      }
      return switch (type.sql()) {
        case "BOOLEAN" -> value;
        case "BIGINT" -> ((Number) value).longValue();
        case "DOUBLE" -> ((Number) value).doubleValue();
        default -> UTF8String.fromString((String) value);
      };
    }
  }
}
