package io.puffinindex.spark;

import io.puffinindex.spark.aggregates.AggregateAnswer;
import io.puffinindex.spark.functions.ColumnFunction;
import io.puffinindex.spark.functions.ColumnValues;
import io.puffinindex.spark.pages.WantedRowGroup;
import io.puffinindex.spark.scans.IcebergScans;
import io.puffinindex.spark.scans.View;
import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.BiFunction;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.SnapshotSummary;
import org.apache.iceberg.Table;
import org.roaringbitmap.RoaringBitmap;

/**
 * Asks the planner which row groups of a scan need not be read.
 *
 * <p>Both sides number the row groups of one version of an index table alike ({@link View}). A
 * request has a scan's row groups as a bitmap of these numbers. {@code
 * planner/spark/requests/wire.py} describes requests and answers.
 */
public final class IndexPlanner {
  private static final int ATTEMPTS = 5;
  private static final int ABSENT_REMEMBERED = 10000;
  private static final int VIEWS_REMEMBERED = 1000;
  private static final int RESULTS_REMEMBERED = 200;

  private final PythonCalls<String, byte[], byte[]> planner;

  /** By table name and UUID. A table may have several names, and an index under one of them. */
  private final Map<String, View> views = Lists.latest(VIEWS_REMEMBERED);

  /** Until which System.nanoTime() a table counts as one without an index, by {@link #absence}. */
  private final Map<Object, Double> absent = Lists.latest(ABSENT_REMEMBERED);

  /** Where functions are true, by {@link ColumnFunction#key}; empty if that takes too long. */
  private final Map<Object, Optional<Node>> results = Lists.latest(RESULTS_REMEMBERED);

  /** The lists of values that functions were evaluated for last, by table and column. */
  private final Map<Object, String> lists = Lists.latest(RESULTS_REMEMBERED);

  public IndexPlanner(BiFunction<String, byte[], byte[]> planner) {
    this.planner = new PythonCalls<>(planner);
  }

  public boolean isNotToBeAsked(Table table, Settings settings) {
    if (settings.says("enabled", "false")) {
      return true;
    }
    Double until = absent.get(absence(table, settings));
    return until != null && System.nanoTime() < until;
  }

  /**
   * Ask about some tasks of data files, or narrowed from such tasks.
   *
   * @return an {@link AggregateAnswer} if the question has aggregates; null if nothing changes
   */
  Answer ask(ScanQuestion question, List<FileScanTask> tasks, String home) throws IOException {
    Table table = question.table;
    Node request = question.request(home);
    Long whole = wholeSnapshot(question, tasks);
    String key = key(table);
    recall(question);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
      View view = views.getOrDefault(key, View.NONE);
      View.Candidates candidates = view.candidates(tasks, whole);
      request.put("version", view.version);
      request.put("unindexed", candidates.unindexed);
      request.put("unindexed_files", candidates.unindexedFiles);
      if (question.wanted != null) {
        request.put("wanted", question.wanted.with("deleted", view.withDeletes(tasks)));
      }
      if (question.aggregates != null) {
        request.put("aggregates", question.aggregates.node(view.deletes(tasks, table.schema())));
      }
      byte[] answer = planner.apply(Node.JSON.writeValueAsString(request), candidates.serialized);
      if (answer == null || answer.length == 0) {
        return null;
      }
      DataInputStream in = new DataInputStream(new ByteArrayInputStream(answer));
      char kind = (char) in.readByte();
      switch (kind) {
        case 'A' -> {
          absent.put(absence(table, question.settings), System.nanoTime() + in.readDouble() * 1e9);
          return null;
        }
        case 'D', 'O', 'G' -> {
          Answer found =
              kind == 'G'
                  ? question.aggregates.read(view, candidates.rowGroups, in)
                  : new Answer(view, candidates.rowGroups, kind == 'O', in);
          if (in.read() >= 0) {
            throw new IllegalStateException("an answer with bytes after its end");
          }
          return found;
        }
        case 'F' -> evaluate(question, in);
        // The index table has a newer version. Take its numbering and ask again.
        case 'V' -> views.put(key, View.read(in));
        default -> throw new IllegalStateException("an answer of unknown kind " + kind);
      }
    }
    Trouble.LOG.warn("index not used: the index of {} changes too fast", table.name());
    return null;
  }

  /** Take known results into the request, for lists that are likely still those of the index. */
  private void recall(ScanQuestion question) {
    for (ColumnFunction function : question.conditions.functions) {
      String fingerprint = lists.get(list(question, function));
      Optional<Node> result = fingerprint == null ? null : results.get(function.key(fingerprint));
      if (result != null) {
        function.take(fingerprint, result.orElse(null));
      }
    }
  }

  /** Evaluate functions for the values that the planner lists, as far as there is time. */
  private void evaluate(ScanQuestion question, DataInputStream in) throws IOException {
    long deadline = System.nanoTime() + in.readInt() * 1000000L;
    ColumnValues[] values = new ColumnValues[in.readUnsignedShort()];
    for (int i = 0; i < values.length; i++) {
      values[i] = ColumnValues.read(in);
    }
    for (int left = in.readUnsignedShort(); left > 0; left--) {
      ColumnFunction function = question.conditions.functions.get(in.readUnsignedShort());
      ColumnValues own = values[in.readUnsignedShort()];
      Object key = function.key(own.fingerprint());
      Optional<Node> result = function.isOfThisSession() ? results.get(key) : Optional.empty();
      if (result == null) {
        var evaluation = function.matches(own);
        result = evaluation.result(deadline);
        if (evaluation.wasBegun()) {
          results.put(key, result);
        }
      }
      lists.put(list(question, function), own.fingerprint());
      function.take(own.fingerprint(), result.orElse(null));
    }
  }

  private static Object list(ScanQuestion question, ColumnFunction function) {
    return List.of(key(question.table), function.node.get("column"));
  }

  private static String key(Table table) {
    return table.name() + " " + table.uuid();
  }

  /** The settings count: they say how long an absence holds. */
  private static Object absence(Table table, Settings settings) {
    return List.of(key(table), settings);
  }

  /** The snapshot of a scan of all its data files; null for others, and where none is said. */
  private static Long wholeSnapshot(ScanQuestion question, List<FileScanTask> tasks) {
    Long id = question.snapshot;
    var snapshot = id == null ? null : question.table.snapshot(id);
    Map<String, String> summary = snapshot == null ? null : snapshot.summary();
    return summary != null
            && String.valueOf(tasks.size())
                .equals(summary.get(SnapshotSummary.TOTAL_DATA_FILES_PROP))
        ? id
        : null;
  }

  /**
   * The row groups to drop. A row group that was not asked about stays, whatever the summary of its
   * snapshot says. A truncated or over-long answer is ignored.
   */
  public static class Answer {
    /** What the job's description says, may be empty. */
    public final String note;

    /** The IDs of join columns whose keys are worth to be asked about once they are known. */
    public final Set<Integer> runtimeFields = new HashSet<>();

    private final View view;
    private final RoaringBitmap dropped = new RoaringBitmap();
    private final boolean dropsUnknown;

    /** Serialized bitmaps of the rows that can match, by number of a row group. */
    private final Map<Integer, byte[]> fewRows = new HashMap<>();

    protected Answer(View view, RoaringBitmap asked, boolean dropsUnknown, DataInputStream in)
        throws IOException {
      this.view = view;
      this.dropsUnknown = dropsUnknown;
      note = View.text(in, in.readUnsignedShort());
      for (int left = in.readUnsignedShort(); left > 0; left--) {
        runtimeFields.add(in.readInt());
      }
      dropped.deserialize(in);
      dropped.and(asked);
      for (int left = in.readInt(); left > 0; left--) {
        fewRows.put(in.readInt(), View.bytes(in, in.readInt()));
      }
    }

    public boolean keepsAll() {
      return dropped.isEmpty() && !dropsUnknown;
    }

    /** Row groups of which few rows are wanted, by location of their data file. */
    public Map<String, List<WantedRowGroup>> fewRows(List<FileScanTask> tasks) {
      return fewRows.isEmpty() ? Map.of() : view.fewRows(tasks, fewRows);
    }

    public IcebergScans.Pruned left(List<FileScanTask> tasks) {
      return view.without(tasks, dropped, dropsUnknown);
    }
  }
}
