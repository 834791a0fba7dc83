package io.puffinindex.spark;

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.InflaterInputStream;
import org.apache.iceberg.BaseFileScanTask;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.FileScanTask;
import org.roaringbitmap.RoaringBitmap;

/**
 * The numbering of row groups in one version of an index table.
 *
 * <p>Data files are looked up by path once. A manifest never changes, so from then on a file is known by its manifest and
 * its position in it: paths of very many files take longer to hash than all the rest.
 */
public class View {
  /** What there is before row groups are numbered: nothing to ask about. */
  public static final View NONE = new View("", new HashMap());

  private static final FileEntry UNKNOWN = new FileEntry(0, new long[0], 0L, 0L);
  private static final int LEAST_REMEMBERED = 10000;
  private static final int SNAPSHOTS_REMEMBERED = 16;

  public final String version;
  private final Map files;
  /** By manifest, the entry of each position; of positions not seen yet null. */
  private final Map manifests = new HashMap();
  private int remembered;
  /** The candidates of snapshots that were scanned whole, by snapshot ID. */
  private final Map snapshots = new LinkedHashMap();

  private View(String version, Map files) {
    this.version = version;
    this.files = files;
  }

  /**
   * The row groups of a scan.
   *
   * @param snapshot the snapshot if all its data files are scanned, else null; such a scan has the same row groups again
   */
  public synchronized Candidates candidates(List tasks, Long snapshot) throws Exception {
    if (this == NONE) {
      return new Candidates(new FileEntry[0], tasks);
    }
    Candidates known = snapshot == null ? null : (Candidates) snapshots.get(snapshot);
    if (known != null) {
      return known;
    }
    Candidates found = new Candidates(entries(tasks), tasks);
    if (snapshot != null) {
      if (snapshots.size() >= SNAPSHOTS_REMEMBERED) {
        snapshots.remove(snapshots.keySet().iterator().next());
      }
      snapshots.put(snapshot, found);
    }
    return found;
  }

  /** The entry of each task's data file; null where there is none that fits, or the task is none of a whole file. */
  public synchronized FileEntry[] entries(List tasks) throws Exception {
    FileEntry[] entries = new FileEntry[tasks.size()];
    String manifest = null;
    FileEntry[] inManifest = null;
    for (int i = 0; i < entries.length; i++) {
      if (!(tasks.get(i) instanceof BaseFileScanTask)) {
        continue;
      }
      FileScanTask task = (FileScanTask) tasks.get(i);
      DataFile file = (DataFile) task.file();
      Long position = file.pos();
      String location = file.manifestLocation();
      if (position == null || location == null || position.longValue() > Integer.MAX_VALUE / 2) {
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
    }
    return entries;
  }

  /** The entries by position of a manifest, with room for one position at least. */
  private FileEntry[] entriesOf(String manifest, int position) {
    FileEntry[] known = (FileEntry[]) manifests.get(manifest);
    if (known != null && position < known.length) {
      return known;
    }
    int length = Math.max(16, position + position / 2 + 1);
    remembered += length - (known == null ? 0 : known.length);
    if (remembered > 4 * files.size() + LEAST_REMEMBERED) {
      // Manifests that tables have left behind would stay as long as the index does not change.
      manifests.clear();
      known = null;
      remembered = length;
    }
    FileEntry[] entries = known == null ? new FileEntry[length] : (FileEntry[]) Arrays.copyOf(known, length);
    manifests.put(manifest, entries);
    return entries;
  }

  private FileEntry entryOf(FileScanTask task) throws Exception {
    DataFile file = (DataFile) task.file();
    String constants = PartitionConstants.of(task);
    FileEntry entry = constants == null ? null : (FileEntry) files.get(key(file.location(), constants));
    if (entry == null || entry.size != file.fileSizeInBytes() || entry.records != file.recordCount()) {
      return null;
    }
    List offsets = file.splitOffsets();
    return offsets != null && offsets.size() != entry.count ? null : entry;
  }

  /** A data file that identity partitions fix other values of is another file to the index. */
  private static String key(String location, String constants) {
    return constants.isEmpty() ? location : constants + " " + location;
  }

  public static View read(DataInputStream header) throws Exception {
    DataInputStream in = new DataInputStream(new InflaterInputStream(header));
    String version = in.readUTF();
    int count = in.readInt();
    Map files = new HashMap(count * 2);
    int first = 0;
    for (int i = 0; i < count; i++) {
      byte[] path = new byte[in.readInt()];
      in.readFully(path);
      byte[] constants = new byte[in.readInt()];
      in.readFully(constants);
      long size = in.readLong();
      long records = in.readLong();
      long[] starts = new long[in.readInt()];
      byte[] packed = new byte[Long.BYTES * starts.length];
      in.readFully(packed);
      ByteBuffer.wrap(packed).asLongBuffer().get(starts);
      String key = key(new String(path, "UTF-8"), new String(constants, "UTF-8"));
      files.put(key, new FileEntry(first, starts, size, records));
      first += starts.length;
    }
    return new View(version, files);
  }

  /** The row groups of a scan, and how many others it has that the index does not know. */
  public static class Candidates {
    public final RoaringBitmap rowGroups = new RoaringBitmap();
    public final byte[] serialized;
    public final int unindexed;

    Candidates(FileEntry[] entries, List tasks) throws Exception {
      int unknown = 0;
      BitSet known = new BitSet();
      for (int i = 0; i < entries.length; i++) {
        if (entries[i] == null) {
          List offsets = ((DataFile) ((FileScanTask) tasks.get(i)).file()).splitOffsets();
          unknown += offsets == null ? 1 : offsets.size();
        } else {
          known.set(entries[i].first, entries[i].first + entries[i].count);
        }
      }
      for (int from = known.nextSetBit(0); from >= 0; ) {
        int to = known.nextClearBit(from);
        rowGroups.add((long) from, (long) to);
        from = known.nextSetBit(to);
      }
      rowGroups.runOptimize();
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      rowGroups.serialize(new DataOutputStream(bytes));
      serialized = bytes.toByteArray();
      unindexed = unknown;
    }
  }

  /** What the index knows of one data file. */
  public static class FileEntry {
    public final int first;
    public final int count;
    public final long size;
    public final long records;
    private final long[] starts;

    FileEntry(int first, long[] starts, long size, long records) {
      this.first = first;
      this.count = starts.length;
      this.size = size;
      this.records = records;
      this.starts = starts;
    }

    /** The first byte and the length of the range of bytes that makes a reader read a row group alone. */
    public long[][] ranges() {
      long[] sorted = (long[]) starts.clone();
      Arrays.sort(sorted);
      long[][] ranges = new long[starts.length][];
      for (int i = 0; i < starts.length; i++) {
        int next = Arrays.binarySearch(sorted, starts[i]) + 1;
        ranges[i] = new long[] {starts[i], (next < sorted.length ? sorted[next] : size) - starts[i]};
        if (starts[i] < 0 || ranges[i][1] <= 0) {
          throw new IllegalStateException("a data file without a byte range for each row group is read whole");
        }
      }
      return ranges;
    }
  }
}
