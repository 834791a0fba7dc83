package io.puffinindex.spark;

import java.io.DataInputStream;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.InflaterInputStream;
import org.apache.iceberg.FileScanTask;
import org.roaringbitmap.RoaringBitmap;

/** The numbering of row groups in one version of an index table. */
public class View {
  public final String version;
  private final Map files;

  private View(String version, Map files) {
    this.version = version;
    this.files = files;
  }

  /** Find the entry of each task's data file, and their row groups; return how many row groups have none. */
  public int find(List tasks, FileEntry[] entries, RoaringBitmap candidates) {
    int unindexed = 0;
    BitSet known = new BitSet();
    for (int i = 0; i < entries.length; i++) {
      FileScanTask task = (FileScanTask) tasks.get(i);
      entries[i] = entryOf(task);
      if (entries[i] == null) {
        List offsets = task.file().splitOffsets();
        unindexed += offsets == null ? 1 : offsets.size();
      } else {
        known.set(entries[i].first, entries[i].first + entries[i].count);
      }
    }
    for (int from = known.nextSetBit(0); from >= 0; ) {
      int to = known.nextClearBit(from);
      candidates.add((long) from, (long) to);
      from = known.nextSetBit(to);
    }
    return unindexed;
  }

  private FileEntry entryOf(FileScanTask task) {
    FileEntry entry = (FileEntry) files.get(task.file().location());
    if (entry == null
        || entry.size != task.file().fileSizeInBytes()
        || entry.records != task.file().recordCount()) {
      return null;
    }
    List offsets = task.file().splitOffsets();
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
