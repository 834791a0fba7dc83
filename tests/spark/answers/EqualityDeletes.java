package io.puffinindex.tests;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.GenericFileWriterFactory;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.deletes.EqualityDeleteWriter;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

/** Writes equality delete files by Iceberg's own writers, as Flink does. */
public class EqualityDeletes {
  /**
   * Commit a delete file.
   *
   * @param specId the partition spec of the file
   * @param partition its partition, as a path; empty without one
   * @param format PARQUET, ORC or AVRO
   * @param names the columns whose values delete, of the table's present schema
   * @param rows a JSON array of arrays of values as text, or null
   */
  public void commit(
      Table table, int specId, String partition, String format, List names, String rows)
      throws Exception {
    PartitionSpec spec = (PartitionSpec) table.specs().get(Integer.valueOf(specId));
    Schema schema = table.schema().select((Collection) names);
    int[] ids = new int[names.size()];
    for (int i = 0; i < ids.length; i++) {
      ids[i] = schema.findField((String) names.get(i)).fieldId();
    }
    StructLike key = partition.isEmpty() ? null : DataFiles.data(spec, partition);
    FileFormat kind = FileFormat.fromString(format);
    EqualityDeleteWriter writer =
        (EqualityDeleteWriter)
            new GenericFileWriterFactory.Builder(table)
                .deleteFileFormat(kind)
                .equalityFieldIds(ids)
                .equalityDeleteRowSchema(schema)
                .build()
                .newEqualityDeleteWriter(
                    OutputFileFactory.builderFor(table, 1, System.nanoTime())
                        .format(kind)
                        .build()
                        .newOutputFile(spec, key),
                    spec,
                    key);
    try {
      for (Iterator all = new ObjectMapper().readTree(rows).iterator(); all.hasNext(); ) {
        JsonNode row = (JsonNode) all.next();
        GenericRecord record = GenericRecord.create(schema);
        for (int i = 0; i < ids.length; i++) {
          Types.NestedField field = schema.findField(ids[i]);
          JsonNode cell = (JsonNode) row.get(i);
          record.setField(field.name(), cell.isNull() ? null : value(field.type(), cell.asText()));
        }
        writer.write(record);
      }
    } finally {
      writer.close();
    }
    table.newRowDelta().addDeletes((DeleteFile) writer.toDeleteFile()).commit();
  }

  private static Object value(Type type, String text) {
    switch (type.typeId()) {
      case INTEGER:
        return Integer.valueOf(text);
      case LONG:
        return Long.valueOf(text);
      case FLOAT:
        return Float.valueOf(text);
      case DOUBLE:
        return Double.valueOf(text);
      case BOOLEAN:
        return Boolean.valueOf(text);
      case STRING:
        return text;
      case UUID:
        return java.util.UUID.fromString(text);
      case DECIMAL:
        return new java.math.BigDecimal(text);
      case DATE:
        return java.time.LocalDate.parse(text);
      case TIMESTAMP:
        return ((Types.TimestampType) type).shouldAdjustToUTC()
            ? (Object) java.time.OffsetDateTime.parse(text)
            : java.time.LocalDateTime.parse(text);
      default:
        throw new IllegalArgumentException(type.toString());
    }
  }
}
