package io.puffinindex.spark.scans;

import io.puffinindex.spark.Lists;
import io.puffinindex.spark.Node;
import io.puffinindex.spark.pages.WantedRowGroup;
import java.io.DataInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.zip.InflaterInputStream;
import org.apache.iceberg.BaseFileScanTask;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileContent;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.Schema;
import org.apache.iceberg.types.Types;
import org.roaringbitmap.BitSetUtil;
import org.roaringbitmap.RoaringBitmap;

/**
 * The numbering of row groups in one version of an index table.
 *
 * <p>The view looks up each data file by path once. A manifest never changes, so from then on the
 * view knows the file by its manifest and its position there: with very many files, hashing the
 * paths takes longer than all the rest.
 */
public final class View {
  /** The view before the first answer: no row group has a number yet. */
  public static final View NONE = new View("", new HashMap<>());

  private static final FileEntry UNKNOWN = new FileEntry(0, new long[0], 0L, 0L);
  private static final int LEAST_REMEMBERED = 10000;
  private static final int SNAPSHOTS_REMEMBERED = 16;

  public final String version;
  private final Map<String, FileEntry> files;

  /** By manifest, an array of entries by position; null at positions that no scan has had yet. */
  private final Map<String, FileEntry[]> manifests = new HashMap<>();

  private int remembered;

  /** Candidates of scans of whole snapshots, by snapshot ID. */
  private final Map<Long, Candidates> snapshots = Lists.latest(SNAPSHOTS_REMEMBERED);

  private View(String version, Map<String, FileEntry> files) {
    this.version = version;
    this.files = files;
  }

  /** The row groups of a scan, which are those of the snapshot if that is given. */
  public synchronized Candidates candidates(List<FileScanTask> tasks, Long snapshot) {
    if (this == NONE) {
      return new Candidates(new FileEntry[0], tasks);
    }
    Candidates known = snapshot == null ? null : snapshots.get(snapshot);
    if (known != null) {
      return known;
    }
    Candidates found = new Candidates(entries(tasks), tasks);
    if (snapshot != null) {
      snapshots.put(snapshot, found);
    }
    return found;
  }

  /** The entry of each task's data file; null where none fits, also for a part of a file. */
  @SuppressWarnings("ReferenceEquality") // UNKNOWN is a mark
  private synchronized FileEntry[] entries(List<FileScanTask> tasks) {
    FileEntry[] entries = new FileEntry[tasks.size()];
    BitSet seen = new BitSet();
    String manifest = null;
    FileEntry[] inManifest = {};
    for (int i = 0; i < entries.length; i++) {
      FileScanTask task = IcebergScans.whole(tasks.get(i));
      if (!(task instanceof BaseFileScanTask)) {
        continue;
      }
      Long position = task.file().pos();
      String location = task.file().manifestLocation();
      if (position == null || location == null || position > Integer.MAX_VALUE / 2) {
        entries[i] = entryOf(task);
      } else {
        int at = position.intValue();
        if (!location.equals(manifest) || at >= inManifest.length) {
          inManifest = entriesOf(location, at);
          manifest = location;
        }
        if (inManifest[at] == null) {
          FileEntry found = entryOf(task);
          inManifest[at] = found == null ? UNKNOWN : found;
        }
        entries[i] = inManifest[at] == UNKNOWN ? null : inManifest[at];
      }
      if (entries[i] != null && entries[i].count() > 0) {
        // The table may have a data file twice. Its numbers are those of the first one.
        int first = entries[i].first;
        entries[i] = seen.get(first) ? null : entries[i];
        seen.set(first);
      }
    }
    return entries;
  }

  /** The row groups of tasks that have deletes, as a serialized bitmap. */
  public byte[] withDeletes(List<FileScanTask> tasks) {
    FileEntry[] entries = entries(tasks);
    RoaringBitmap deleted = new RoaringBitmap();
    for (int i = 0; i < entries.length; i++) {
      if (entries[i] != null && !tasks.get(i).deletes().isEmpty()) {
        deleted.add((long) entries[i].first, (long) entries[i].first + entries[i].count());
      }
    }
    return serialized(deleted);
  }

  /** The delete files of tasks, by data file, and equality delete files once, for Jackson. */
  public Node deletes(List<FileScanTask> tasks, Schema schema) {
    FileEntry[] entries = entries(tasks);
    List<Object> deletes = new ArrayList<>();
    Map<String, Integer> numbers = new HashMap<>();
    List<Object> equalityDeletes = new ArrayList<>();
    for (int i = 0; i < entries.length; i++) {
      List<DeleteFile> own = tasks.get(i).deletes();
      if (entries[i] == null || entries[i].count() == 0 || own.isEmpty()) {
        continue;
      }
      List<Object> files = new ArrayList<>();
      List<Integer> equality = new ArrayList<>();
      for (DeleteFile file : own) {
        List<Object> described =
            List.of(
                file.location(), file.fileSizeInBytes(), file.recordCount(), file.format().name());
        if (file.content() == FileContent.POSITION_DELETES) {
          files.add(described);
          continue;
        }
        if (numbers.putIfAbsent(file.location(), equalityDeletes.size()) == null) {
          equalityDeletes.add(Node.of("file", described, "columns", columns(file, schema)));
        }
        equality.add(numbers.get(file.location()));
      }
      deletes.add(Node.of("first", entries[i].first, "files", files, "equality", equality));
    }
    return Node.of("deletes", deletes, "equality_deletes", equalityDeletes);
  }

  /** The columns of an equality delete file by ID, with their types; null for an unknown type. */
  private static List<Object> columns(DeleteFile file, Schema schema) {
    List<Object> columns = new ArrayList<>();
    for (int id : new TreeSet<>(file.equalityFieldIds())) {
      Types.NestedField field = schema.asStruct().field(id);
      columns.add(Arrays.asList(id, field == null ? null : field.type().toString()));
    }
    return columns;
  }

  public static byte[] serialized(RoaringBitmap bitmap) {
    bitmap.runOptimize();
    ByteBuffer bytes = ByteBuffer.allocate(bitmap.serializedSizeInBytes());
    bitmap.serialize(bytes);
    return bytes.array();
  }

  /**
   * The tasks of a scan with what is left of their row groups. What a narrowed task has lost before
   * stays lost; files that this view does not list go if {@code dropsUnknown}.
   */
  public IcebergScans.Pruned without(
      List<FileScanTask> tasks, RoaringBitmap dropped, boolean dropsUnknown) {
    BitSet gone = new BitSet();
    dropped.forEach((int rowGroup) -> gone.set(rowGroup));
    FileEntry[] entries = entries(tasks);
    IcebergScans.Pruned left = new IcebergScans.Pruned(List.of());
    for (int i = 0; i < entries.length; i++) {
      FileScanTask task = tasks.get(i);
      FileEntry entry = entries[i];
      if (entry == null) {
        if (!dropsUnknown) {
          left.add(task);
        }
        continue;
      }
      int survivors =
          entry.count() - gone.get(entry.first, entry.first + entry.count()).cardinality();
      FileScanTask narrowed =
          survivors == entry.count() ? task : survivors == 0 ? null : narrow(task, entry, gone);
      if (narrowed != null) {
        left.add(narrowed);
      }
    }
    return left;
  }

  /** The wanted rows of row groups, by location of the data file. */
  public Map<String, List<WantedRowGroup>> fewRows(
      List<FileScanTask> tasks, Map<Integer, byte[]> rows) {
    Map<String, List<WantedRowGroup>> wanted = new HashMap<>();
    Set<String> seen = new HashSet<>();
    FileEntry[] entries = entries(tasks);
    for (int i = 0; i < entries.length; i++) {
      String location = tasks.get(i).file().location();
      if (!seen.add(location)) {
        // A data file that the table has twice, with other partition constants.
        wanted.remove(location);
      } else if (entries[i] != null && isReadByPages(tasks.get(i))) {
        List<WantedRowGroup> own = fewRows(entries[i], rows);
        if (!own.isEmpty()) {
          wanted.put(location, own);
        }
      }
    }
    return wanted;
  }

  private static List<WantedRowGroup> fewRows(FileEntry entry, Map<Integer, byte[]> rows) {
    List<WantedRowGroup> wanted = new ArrayList<>();
    long[][] ranges = null;
    for (int at = 0; at < entry.count(); at++) {
      byte[] own = rows.get(entry.first + at);
      if (own != null) {
        // Not every file has such ranges.
        ranges = ranges == null ? entry.ranges() : ranges;
        wanted.add(new WantedRowGroup(ranges[at][0], ranges[at][0] + ranges[at][1], own));
      }
    }
    return wanted;
  }

  private static boolean isReadByPages(FileScanTask task) {
    return task.file().format() == FileFormat.PARQUET && task.file().keyMetadata() == null;
  }

  /**
   * A task of a data file's surviving row groups, null if none survives. The ranges of bytes come
   * from the index: a manifest may list none, and a reader need not go by those that a manifest
   * lists.
   */
  private static FileScanTask narrow(FileScanTask task, FileEntry entry, BitSet gone) {
    long[][] ranges = entry.ranges();
    List<long[]> survivors = new ArrayList<>();
    for (int i = 0; i < ranges.length; i++) {
      if (!gone.get(entry.first + i)) {
        survivors.add(ranges[i]);
      }
    }
    return IcebergScans.narrow(task, survivors);
  }

  /** The entries of a manifest, by position, with room for at least one position. */
  private FileEntry[] entriesOf(String manifest, int position) {
    FileEntry[] known = manifests.get(manifest);
    if (known != null && position < known.length) {
      return known;
    }
    int length = Math.max(16, position + position / 2 + 1);
    remembered += length - (known == null ? 0 : known.length);
    if (remembered > 4 * files.size() + LEAST_REMEMBERED) {
      // Manifests that the table no longer has would stay otherwise.
      manifests.clear();
      known = null;
      remembered = length;
    }
    FileEntry[] entries = known == null ? new FileEntry[length] : Arrays.copyOf(known, length);
    manifests.put(manifest, entries);
    return entries;
  }

  private FileEntry entryOf(FileScanTask task) {
    var file = task.file();
    String constants = PartitionConstants.of(task);
    FileEntry entry = constants == null ? null : files.get(key(file.location(), constants));
    if (entry == null
        || entry.size != file.fileSizeInBytes()
        || entry.records != file.recordCount()) {
      return null;
    }
    List<Long> offsets = file.splitOffsets();
    return offsets != null && offsets.size() != entry.count() ? null : entry;
  }

  /** To the index, one data file with two sets of partition constants is two files. */
  private static String key(String location, String constants) {
    return constants.isEmpty() ? location : constants + " " + location;
  }

  public static View read(DataInputStream header) throws IOException {
    DataInputStream in = new DataInputStream(new InflaterInputStream(header));
    String version = in.readUTF();
    int count = in.readInt();
    Map<String, FileEntry> files = new HashMap<>(count * 2);
    int first = 0;
    for (int i = 0; i < count; i++) {
      String path = text(in, in.readInt());
      String constants = text(in, in.readInt());
      long size = in.readLong();
      long records = in.readLong();
      long[] starts = longs(in, in.readInt());
      files.put(key(path, constants), new FileEntry(first, starts, size, records));
      first += starts.length;
    }
    return new View(version, files);
  }

  public static String text(DataInputStream in, int length) throws IOException {
    return new String(bytes(in, length), StandardCharsets.UTF_8);
  }

  public static byte[] bytes(DataInputStream in, int length) throws IOException {
    byte[] bytes = new byte[length];
    in.readFully(bytes);
    return bytes;
  }

  public static long[] longs(DataInputStream in, int count) throws IOException {
    long[] numbers = new long[count];
    ByteBuffer.wrap(bytes(in, Long.BYTES * count)).asLongBuffer().get(numbers);
    return numbers;
  }

  /** The row groups of a scan that the index knows; the others, and their files, are counted. */
  public static final class Candidates {
    public final RoaringBitmap rowGroups;
    public final byte[] serialized;
    public final int unindexed;
    public final int unindexedFiles;

    private Candidates(FileEntry[] entries, List<FileScanTask> tasks) {
      int unknown = 0;
      int unknownFiles = 0;
      BitSet known = new BitSet();
      for (int i = 0; i < entries.length; i++) {
        if (entries[i] == null) {
          List<Long> offsets = tasks.get(i).file().splitOffsets();
          unknown += offsets == null ? 1 : offsets.size();
          unknownFiles++;
        } else {
          known.set(entries[i].first, entries[i].first + entries[i].count());
        }
      }
      rowGroups = BitSetUtil.bitmapOf(known);
      serialized = serialized(rowGroups);
      unindexed = unknown;
      unindexedFiles = unknownFiles;
    }
  }

  /** One data file: the number of its first row group, and where its row groups begin. */
  @SuppressWarnings("ArrayRecordComponent") // nobody compares it
  private record FileEntry(int first, long[] starts, long size, long records) {
    int count() {
      return starts.length;
    }

    /** The first byte and the length of the ranges that make readers read one row group each. */
    long[][] ranges() {
      long[] sorted = starts.clone();
      Arrays.sort(sorted);
      long[][] ranges = new long[starts.length][];
      for (int i = 0; i < starts.length; i++) {
        int next = Arrays.binarySearch(sorted, starts[i]) + 1;
        ranges[i] =
            new long[] {starts[i], (next < sorted.length ? sorted[next] : size) - starts[i]};
        if (starts[i] < 0 || ranges[i][1] <= 0) {
          throw new IllegalStateException(
              "a data file without a byte range for each row group is read whole");
        }
      }
      return ranges;
    }
  }
}
