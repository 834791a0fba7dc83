package io.puffinindex.spark;

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.InflaterInputStream;
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

  private static final FileEntry UNKNOWN = new FileEntry(0, 0, 0L, 0L);
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

  /** The entry of each task's data file; null where there is none that fits. */
  public synchronized FileEntry[] entries(List tasks) {
    FileEntry[] entries = new FileEntry[tasks.size()];
    String manifest = null;
    FileEntry[] inManifest = null;
    for (int i = 0; i < entries.length; i++) {
      DataFile file = (DataFile) ((FileScanTask) tasks.get(i)).file();
      Long position = file.pos();
      String location = file.manifestLocation();
      if (position == null || location == null || position.longValue() > Integer.MAX_VALUE / 2) {
        entries[i] = entryOf(file);
      } else {
        int at = position.intValue();
        if (!location.equals(manifest) || at >= inManifest.length) {
          inManifest = entriesOf(location, at);
          manifest = location;
        }
        if (inManifest[at] == null) {
          FileEntry found = entryOf(file);
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

  private FileEntry entryOf(DataFile file) {
    FileEntry entry = (FileEntry) files.get(file.location());
    if (entry == null || entry.size != file.fileSizeInBytes() || entry.records != file.recordCount()) {
      return null;
    }
    List offsets = file.splitOffsets();
    return offsets != null && offsets.size() != entry.count ? null : entry;
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
      long size = in.readLong();
      long records = in.readLong();
      int rowGroups = in.readInt();
      files.put(new String(path, "UTF-8"), new FileEntry(first, rowGroups, size, records));
      first += rowGroups;
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

    FileEntry(int first, int count, long size, long records) {
      this.first = first;
      this.count = count;
      this.size = size;
      this.records = records;
    }
  }
}
