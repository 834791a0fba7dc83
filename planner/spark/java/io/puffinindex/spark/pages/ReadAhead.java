package io.puffinindex.spark.pages;

import java.io.EOFException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.iceberg.shaded.org.apache.parquet.io.DelegatingSeekableInputStream;
import org.apache.iceberg.shaded.org.apache.parquet.io.InputFile;
import org.apache.iceberg.shaded.org.apache.parquet.io.SeekableInputStream;

/**
 * A data file for Parquet's reader. Ranges that somebody has named before are in memory, near ones
 * by one request; all other bytes are read when the reader asks for them.
 */
final class ReadAhead implements InputFile, BytesStream.Source {
  /** Reading this many useless bytes costs less than another request. */
  private static final int GAP_BYTES = 16 << 10;

  private final long length;
  private final org.apache.iceberg.io.SeekableInputStream stream;
  private final TreeMap<Long, byte[]> held = new TreeMap<>();

  ReadAhead(org.apache.iceberg.io.InputFile file) {
    length = file.getLength();
    stream = file.newStream();
  }

  /** Hold some ranges, in any order, until {@link #forget}. */
  void fetch(List<Range> ranges) throws IOException {
    List<Range> sorted = new ArrayList<>(ranges);
    sorted.sort(Comparator.comparingLong(Range::first));
    int from = 0;
    for (int i = 0; i < sorted.size(); i++) {
      long end = Math.max(sorted.get(i).end(), from < i ? sorted.get(i - 1).end() : 0);
      sorted.set(i, new Range(sorted.get(i).first(), end));
      if (i + 1 == sorted.size() || sorted.get(i + 1).first() > end + GAP_BYTES) {
        long first = sorted.get(from).first();
        held.put(first, read(first, Math.toIntExact(end - first)));
        from = i + 1;
      }
    }
  }

  void forget() {
    held.clear();
  }

  /** Exactly these bytes. */
  byte[] read(long first, int count) throws IOException {
    byte[] bytes = new byte[count];
    for (int have = 0; have < count; ) {
      int more = readAt(first + have, bytes, have, count - have);
      if (more < 0) {
        throw new EOFException("no byte at " + (first + have) + ", " + length + " bytes");
      }
      have += more;
    }
    return bytes;
  }

  @Override
  public int readAt(long position, byte[] into, int offset, int count) throws IOException {
    Map.Entry<Long, byte[]> near = held.floorEntry(position);
    long within = near == null ? -1 : position - near.getKey();
    if (within >= 0 && within < near.getValue().length) {
      int most = (int) Math.min(count, near.getValue().length - within);
      System.arraycopy(near.getValue(), (int) within, into, offset, most);
      return most;
    }
    if (stream.getPos() != position) {
      stream.seek(position);
    }
    return stream.read(into, offset, count);
  }

  @Override
  public long getLength() {
    return length;
  }

  @Override
  public SeekableInputStream newStream() {
    BytesStream bytes = new BytesStream(this);
    return new DelegatingSeekableInputStream(bytes) {
      @Override
      public long getPos() {
        return bytes.getPos();
      }

      @Override
      public void seek(long position) {
        bytes.seek(position);
      }
    };
  }

  @Override
  public void close() throws IOException {
    stream.close();
  }
}
