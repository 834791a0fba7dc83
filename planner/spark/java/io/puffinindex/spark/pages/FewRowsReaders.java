package io.puffinindex.spark.pages;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.LongPredicate;
import org.apache.commons.lang3.reflect.FieldUtils;
import org.apache.commons.lang3.reflect.MethodUtils;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileContent;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.MetadataColumns;
import org.apache.iceberg.ScanTask;
import org.apache.iceberg.ScanTaskGroup;
import org.apache.iceberg.Schema;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.mapping.NameMapping;
import org.apache.iceberg.parquet.ParquetSchemaUtil;
import org.apache.iceberg.shaded.org.apache.parquet.schema.MessageType;
import org.apache.iceberg.types.TypeUtil;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.util.CollectionAccumulator;

/**
 * Makes Iceberg's readers on executors, and lets them read few rows of the data files that have
 * few.
 */
record FewRowsReaders(PartitionReaderFactory factory, CollectionAccumulator<String> notPicked)
    implements PartitionReaderFactory {
  /** These are the same for all rows of a data file. */
  private static final Set<Integer> WITHOUT_POSITION =
      Set.of(
          MetadataColumns.FILE_PATH.fieldId(),
          MetadataColumns.SPEC_ID.fieldId(),
          MetadataColumns.PARTITION_COLUMN_ID);

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    return withFewRows(partition, factory.createReader(FewRowsPartition.whole(partition)));
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    return withFewRows(partition, factory.createColumnarReader(FewRowsPartition.whole(partition)));
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return factory.supportColumnarReads(FewRowsPartition.whole(partition));
  }

  /** Let a reader open files with few rows in the place of the data files. */
  private <R> R withFewRows(InputPartition partition, R reader) {
    if (partition instanceof FewRowsPartition own) {
      try {
        @SuppressWarnings("unchecked") // reflection
        var files =
            new HashMap<>(
                (Map<String, InputFile>) MethodUtils.invokeMethod(reader, true, "inputFiles"));
        ScanTaskGroup<?> group = (ScanTaskGroup<?>) FieldUtils.readField(reader, "taskGroup", true);
        for (var entry : own.wanted().entrySet()) {
          List<FileScanTask> tasks =
              group.tasks().stream()
                  .map(ScanTask::asFileScanTask)
                  .filter(task -> task.file().location().equals(entry.getKey()))
                  .toList();
          InputFile file = files.get(entry.getKey());
          files.put(entry.getKey(), fewRows(file, entry.getValue(), tasks, reader));
        }
        FieldUtils.writeField(reader, "lazyInputFiles", files, true);
      } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
        PagesNotPicked.tell(notPicked, own.wanted().keySet().toString(), e);
      }
    }
    return reader;
  }

  private InputFile fewRows(
      InputFile file, List<WantedRowGroup> wanted, List<FileScanTask> tasks, Object reader)
      throws ReflectiveOperationException {
    Schema schema = (Schema) MethodUtils.invokeMethod(reader, true, "expectedSchema");
    NameMapping names = (NameMapping) MethodUtils.invokeMethod(reader, true, "nameMapping");
    List<DeleteFile> deletes = tasks.stream().flatMap(task -> task.deletes().stream()).toList();
    boolean withPositions =
        !deletes.isEmpty()
            || TypeUtil.getProjectedIds(schema).stream()
                .anyMatch(
                    id -> MetadataColumns.isMetadataColumn(id) && !WITHOUT_POSITION.contains(id));
    LongPredicate isRead =
        middle ->
            tasks.stream()
                .anyMatch(task -> task.start() <= middle && middle < task.start() + task.length());
    Schema read = with(schema, deletes);
    return new FewRowsFile(
        file,
        wanted,
        isRead,
        columns -> projection(columns, read, names),
        withPositions,
        notPicked);
  }

  /** The columns of a schema, and those that equality deletes compare. */
  private static Schema with(Schema schema, List<DeleteFile> deletes) {
    Set<Integer> known = TypeUtil.getProjectedIds(schema);
    List<Types.NestedField> fields = new ArrayList<>(schema.columns());
    deletes.stream()
        .filter(delete -> delete.content() == FileContent.EQUALITY_DELETES)
        .flatMap(delete -> delete.equalityFieldIds().stream())
        .filter(id -> !known.contains(id))
        .distinct()
        // Only the ID of such a field matters here.
        .forEach(
            id ->
                fields.add(
                    Types.NestedField.optional(
                        id, "compared field " + id, Types.IntegerType.get())));
    return new Schema(fields);
  }

  /** The columns of a file that Iceberg reads for a schema. */
  private static MessageType projection(MessageType columns, Schema schema, NameMapping names) {
    if (ParquetSchemaUtil.hasIds(columns)) {
      return ParquetSchemaUtil.pruneColumns(columns, schema);
    }
    return names == null
        ? ParquetSchemaUtil.pruneColumnsFallback(columns, schema)
        : ParquetSchemaUtil.pruneColumns(
            ParquetSchemaUtil.applyNameMapping(columns, names), schema);
  }
}
