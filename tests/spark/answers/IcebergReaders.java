package io.puffinindex.tests;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.sql.Timestamp;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.UUID;
import org.apache.commons.codec.binary.Hex;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.common.type.HiveDecimal;
import org.apache.hadoop.hive.ql.exec.vector.BytesColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.ColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.DecimalColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.DoubleColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.LongColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.TimestampColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.VectorizedRowBatch;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.Files;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.formats.FormatModelRegistry;
import org.apache.iceberg.formats.ReadBuilder;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.util.ByteBuffers;
import org.apache.orc.OrcFile;
import org.apache.orc.TypeDescription;
import org.apache.orc.Writer;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

public class IcebergReaders {
  /**
   * What each reader makes of each one-column schema: a line of values, or one that begins with
   * `!`.
   */
  public String readAll(String path, String format, String schemas) {
    StringBuilder lines = new StringBuilder();
    for (String schema : schemas.split("\n")) {
      for (Class row : new Class[] {Record.class, InternalRow.class, ColumnarBatch.class}) {
        try {
          lines.append(String.join("\t", read(path, format, schema, row)));
        } catch (Throwable error) {
          Throwable cause = error;
          while (cause.getCause() != null) {
            cause = cause.getCause();
          }
          lines.append("!").append(String.valueOf(cause).replace("\n", " "));
        }
        lines.append("\n");
      }
    }
    return lines.toString();
  }

  /** Write an ORC file of six rows, with a type of ORC's own for each column. */
  public void writeOrc(String path, String types) throws Exception {
    TypeDescription schema = TypeDescription.fromString(types);
    for (int at = 0; at < schema.getChildren().size(); at++) {
      ((TypeDescription) schema.getChildren().get(at))
          .setAttribute("iceberg.id", String.valueOf(at + 1));
    }
    Writer writer =
        OrcFile.createWriter(
            new Path(path),
            OrcFile.writerOptions(new Configuration()).setSchema(schema).overwrite(true));
    VectorizedRowBatch batch = schema.createRowBatch();
    long[] numbers = {1, -1, 0, 100, -100, 1};
    String[] texts = {"a", "ab ", "  x", "", "abcdef", "a"};
    for (int row = 0; row < numbers.length; row++) {
      batch.size++;
      for (int at = 0; at < batch.cols.length; at++) {
        ColumnVector column = batch.cols[at];
        if (column instanceof TimestampColumnVector) {
          ((TimestampColumnVector) column).set(row, new Timestamp(numbers[row] * 86400123456L));
        } else if (column instanceof LongColumnVector) {
          ((LongColumnVector) column).vector[row] = numbers[row];
        } else if (column instanceof DoubleColumnVector) {
          ((DoubleColumnVector) column).vector[row] = numbers[row] / 8.0;
        } else if (column instanceof DecimalColumnVector) {
          ((DecimalColumnVector) column).set(row, HiveDecimal.create(numbers[row] + ".5"));
        } else if (column instanceof BytesColumnVector) {
          ((BytesColumnVector) column).setVal(row, texts[row].getBytes(StandardCharsets.UTF_8));
        }
      }
    }
    writer.addRowBatch(batch);
    writer.close();
  }

  private List read(String path, String format, String schemaJson, Class row) throws Exception {
    Schema schema = SchemaParser.fromJson(schemaJson);
    ReadBuilder builder =
        FormatModelRegistry.readBuilder(FileFormat.fromString(format), row, Files.localInput(path));
    builder.project(schema);
    CloseableIterable rows = builder.build();
    List values = new ArrayList();
    Type type = ((org.apache.iceberg.types.Types.NestedField) schema.columns().get(0)).type();
    try {
      for (Object next : rows) {
        if (next instanceof Record) {
          values.add(text(((Record) next).get(0), type));
        } else if (next instanceof ColumnarBatch) {
          for (Iterator inner = ((ColumnarBatch) next).rowIterator(); inner.hasNext(); ) {
            values.add(text((InternalRow) inner.next(), SparkSchemaUtil.convert(type), type));
          }
        } else {
          values.add(text((InternalRow) next, SparkSchemaUtil.convert(type), type));
        }
      }
    } finally {
      rows.close();
    }
    return values;
  }

  private static Object text(InternalRow row, DataType type, Type iceberg) {
    if (row.isNullAt(0)) {
      return null;
    }
    if (type instanceof BooleanType) {
      return row.getBoolean(0) ? "i:1" : "i:0";
    }
    if (type instanceof IntegerType || type instanceof DateType) {
      return "i:" + row.getInt(0);
    }
    if (type instanceof FloatType) {
      return "f:" + (double) row.getFloat(0);
    }
    if (type instanceof DoubleType) {
      return "f:" + row.getDouble(0);
    }
    if (type instanceof DecimalType) {
      DecimalType decimal = (DecimalType) type;
      return "d:"
          + row.getDecimal(0, decimal.precision(), decimal.scale())
              .toJavaBigDecimal()
              .toPlainString();
    }
    if (type instanceof StringType) {
      boolean isUuid = iceberg.typeId() == Type.TypeID.UUID;
      UTF8String text = row.getUTF8String(0);
      return "b:"
          + (isUuid ? text.toString().replace("-", "") : Hex.encodeHexString(text.getBytes()));
    }
    if (type instanceof BinaryType) {
      return "b:" + Hex.encodeHexString(row.getBinary(0));
    }
    return "i:" + row.getLong(0);
  }

  private static Object text(Object value, Type type) {
    if (value == null) {
      return null;
    }
    boolean nanos = type.typeId() == Type.TypeID.TIMESTAMP_NANO;
    switch (type.typeId()) {
      case BOOLEAN:
        return ((Boolean) value).booleanValue() ? "i:1" : "i:0";
      case INTEGER:
        return "i:" + ((Integer) value).intValue();
      case LONG:
        return "i:" + ((Long) value).longValue();
      case FLOAT:
        return "f:" + ((Float) value).doubleValue();
      case DOUBLE:
        return "f:" + ((Double) value).doubleValue();
      case DATE:
        return "i:" + ((LocalDate) value).toEpochDay();
      case TIME:
        return "i:" + ((LocalTime) value).toNanoOfDay() / 1000;
      case TIMESTAMP:
      case TIMESTAMP_NANO:
        OffsetDateTime at =
            value instanceof OffsetDateTime
                ? (OffsetDateTime) value
                : ((LocalDateTime) value).atOffset(ZoneOffset.UTC);
        long seconds = Math.multiplyExact(at.toEpochSecond(), nanos ? 1000000000L : 1000000L);
        return "i:" + Math.addExact(seconds, at.getNano() / (nanos ? 1L : 1000L));
      case DECIMAL:
        return "d:" + ((BigDecimal) value).toPlainString();
      case STRING:
        return "b:" + Hex.encodeHexString(value.toString().getBytes(StandardCharsets.UTF_8));
      case UUID:
        return "b:" + ((UUID) value).toString().replace("-", "");
      case FIXED:
        return "b:" + Hex.encodeHexString((byte[]) value);
      case BINARY:
        return "b:" + Hex.encodeHexString(ByteBuffers.toByteArray((ByteBuffer) value));
      default:
        throw new IllegalArgumentException(type.toString());
    }
  }
}
