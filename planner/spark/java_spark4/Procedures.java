package io.puffinindex.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
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
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;

/** The catalog {@code puffin}, which has procedures and nothing else. */
public class Procedures implements ProcedureCatalog {
  private static final String NAMESPACE = "system";

  private final PruneScans rule;
  private final PythonStatements python;
  /** What Python's side tells of each procedure, by name. */
  private final Map<String, Object> described = new LinkedHashMap();

  /** @param described a JSON list of the procedures: name, description, parameters, columns */
  public Procedures(PruneScans rule, PythonStatements python, String described) throws Exception {
    this.rule = rule;
    this.python = python;
    for (Map<String, Object> one : (List<Map<String, Object>>) new ObjectMapper().readValue(described, List.class)) {
      this.described.put((String) one.get("name"), one);
    }
  }

  public void initialize(String name, CaseInsensitiveStringMap options) {}

  public String name() {
    return "puffin";
  }

  public Identifier[] listProcedures(String[] namespace) {
    boolean isOurs = namespace.length == 0 || (namespace.length == 1 && namespace[0].equalsIgnoreCase(NAMESPACE));
    List found = new ArrayList();
    for (Iterator it = described.keySet().iterator(); isOurs && it.hasNext(); ) {
      found.add(Identifier.of(new String[] {NAMESPACE}, (String) it.next()));
    }
    return (Identifier[]) found.toArray(new Identifier[0]);
  }

  public UnboundProcedure loadProcedure(Identifier name) {
    if (rule.hasEnded()) {
      throw new Unknown("puffin-index was disabled");
    }
    Map<String, Object> one = (Map) described.get(name.name().toLowerCase(java.util.Locale.ROOT));
    if (one == null || name.namespace().length != 1 || !name.namespace()[0].equalsIgnoreCase(NAMESPACE)) {
      String known = String.join(", ", described.keySet());
      throw new Unknown("there is no procedure puffin." + name + "; there are, in puffin.system: " + known);
    }
    return new One(one, python);
  }

  /** Spark shows the message of an error of this interface as it is. */
  public static class Unknown extends IllegalArgumentException implements SparkThrowable {
    public Unknown(String message) {
      super(message);
    }

    public String getCondition() {
      return null;
    }

    public String getErrorClass() {
      return null;
    }
  }

  /** One procedure. */
  public static class One implements UnboundProcedure, BoundProcedure {
    private final Map<String, Object> described;
    private final PythonStatements python;

    public One(Map<String, Object> described, PythonStatements python) {
      this.described = described;
      this.python = python;
    }

    public String name() {
      return (String) described.get("name");
    }

    public String description() {
      return (String) described.get("description");
    }

    public BoundProcedure bind(StructType arguments) {
      return this;
    }

    public boolean isDeterministic() {
      return false;
    }

    public ProcedureParameter[] parameters() {
      List parameters = new ArrayList();
      for (Map<String, Object> one : (List<Map<String, Object>>) described.get("parameters")) {
        parameters.add(parameter(one));
      }
      return (ProcedureParameter[]) parameters.toArray(new ProcedureParameter[0]);
    }

    private static ProcedureParameter parameter(Map<String, Object> one) {
      ProcedureParameter.Builder builder = ProcedureParameter.in((String) one.get("name"), type(one));
      // Python's side has the defaults.
      return (Boolean.TRUE.equals(one.get("required")) ? builder : builder.defaultValue("NULL")).build();
    }

    public Iterator call(InternalRow arguments) {
      List parameters = (List) described.get("parameters");
      Map values = new LinkedHashMap();
      for (int i = 0; i < parameters.size(); i++) {
        Map<String, Object> one = (Map) parameters.get(i);
        Object value = arguments.isNullAt(i) ? null : arguments.get(i, type(one));
        values.put(one.get("name"), value instanceof UTF8String ? value.toString() : value);
      }
      List rows = python.execute(Lists.map("statement", "call", "name", name(), "arguments", values));
      return Collections.singletonList(new Result((List) described.get("columns"), rows)).iterator();
    }
  }

  /** The rows of a result. */
  public static class Result implements LocalScan {
    private final List<Map<String, Object>> columns;
    private final List rows;

    public Result(List columns, List rows) {
      this.columns = columns;
      this.rows = rows;
    }

    public StructType readSchema() {
      StructType schema = new StructType();
      for (Map<String, Object> column : columns) {
        schema = schema.add((String) column.get("name"), type(column));
      }
      return schema;
    }

    public InternalRow[] rows() {
      StructField[] fields = readSchema().fields();
      InternalRow[] found = new InternalRow[rows.size()];
      for (int i = 0; i < found.length; i++) {
        List row = (List) rows.get(i);
        Object[] values = new Object[fields.length];
        for (int j = 0; j < fields.length; j++) {
          values[j] = value(row.get(j), fields[j].dataType().sql());
        }
        found[i] = new GenericInternalRow(values);
      }
      return found;
    }

    private static Object value(Object value, String type) {
      if (value == null || type.equals("BOOLEAN")) {
        return value;
      }
      if (type.equals("BIGINT")) {
        return Long.valueOf(((Number) value).longValue());
      }
      return type.equals("DOUBLE")
          ? (Object) Double.valueOf(((Number) value).doubleValue())
          : UTF8String.fromString((String) value);
    }
  }

  private static DataType type(Map<String, Object> described) {
    return DataType.fromDDL((String) described.get("type"));
  }
}
