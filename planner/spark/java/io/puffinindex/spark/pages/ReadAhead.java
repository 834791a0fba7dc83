package io.puffinindex.spark.pages;

import java.io.EOFException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import org.apache.commons.io.IOUtils;
import org.apache.iceberg.io.RangeReadable;
import org.apache.iceberg.shaded.org.apache.parquet.io.DelegatingSeekableInputStream;
import org.apache.iceberg.shaded.org.apache.parquet.io.InputFile;
import org.apache.iceberg.shaded.org.apache.parquet.io.SeekableInputStream;
import org.apache.spark.util.ThreadUtils;

/**
 * A data file for Parquet's reader. Ranges that somebody has named before are in memory, near ones
 * by one request; all other bytes are read when the reader asks for them.
 */
final class ReadAhead implements InputFile, BytesStream.Source {
  /** Reading this many useless bytes costs less than another request. */
  private static final int GAP_BYTES = 16 << 10;

  private static final int REMOTE_GAP_BYTES = 128 << 10;
  private static final int FOOTER_BYTES = 64 << 10;

  /** Ask a store for ranges side by side. */
  private static final ExecutorService THREADS =
      ThreadUtils.newDaemonFixedThreadPool(16, "puffin-index-pages");

  private final org.apache.iceberg.io.InputFile file;
  private final boolean isLocal;
  private final long length;
  private final org.apache.iceberg.io.SeekableInputStream stream;
  private final TreeMap<Long, byte[]> held = new TreeMap<>();

  /** The held range that was read last. */
  private Map.Entry<Long, byte[]> latest;

  ReadAhead(org.apache.iceberg.io.InputFile file) {
    this.file = file;
    isLocal = file.location().startsWith("file:") || file.location().startsWith("/");
    length = file.getLength();
    stream = file.newStream();
  }

  /**
   * Hold the end of a remote file, where the footer most likely is. Asking for the footer's length
   * first would take another request.
   */
  void fetchFooter() throws IOException {
    if (!isLocal) {
      fetch(List.of(new Range(Math.max(length - FOOTER_BYTES, 0), length)));
    }
  }

  /** Hold some ranges, in any order, until {@link #forget}. */
  void fetch(List<Range> ranges) throws IOException {
    List<Range> sorted =
        ranges.stream()
            .filter(range -> !isHeld(range))
            .sorted(Comparator.comparingLong(Range::first))
            .toList();
    List<Range> near = Range.joined(sorted, isLocal ? GAP_BYTES : REMOTE_GAP_BYTES);
    if (isLocal) {
      for (Range range : near) {
        held.put(range.first(), read(range.first(), Math.toIntExact(range.length())));
      }
      return;
    }
    List<Future<byte[]>> asked =
        near.stream().map(range -> THREADS.submit(() -> alone(range))).toList();
    try {
      for (int i = 0; i < near.size(); i++) {
        held.put(near.get(i).first(), asked.get(i).get());
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException();
    } catch (ExecutionException e) {
      throw new IOException(e.getCause());
    } finally {
      asked.forEach(one -> one.cancel(true));
    }
  }

  /** The bytes of a range by a request of their own. */
  private byte[] alone(Range range) throws IOException {
    byte[] bytes = new byte[Math.toIntExact(range.length())];
    try (var own = file.newStream()) {
      if (own instanceof RangeReadable ranged) {
        ranged.readFully(range.first(), bytes);
      } else {
        own.seek(range.first());
        IOUtils.readFully(own, bytes);
      }
    }
    return bytes;
  }

  private boolean isHeld(Range range) {
    Map.Entry<Long, byte[]> near = held.floorEntry(range.first());
    return near != null && near.getKey() + near.getValue().length >= range.end();
  }

  private static boolean has(Map.Entry<Long, byte[]> range, long position) {
    long within = position - range.getKey();
    return within >= 0 && within < range.getValue().length;
  }

  /** Hold other bytes than those of the file at a place. */
  void put(long first, byte[] bytes) {
    latest = null;
    held.put(first, bytes);
  }

  /** Exactly these bytes, which stay in memory until {@link #forget}. */
  byte[] hold(long first, int count) throws IOException {
    fetch(List.of(new Range(first, first + count)));
    return read(first, count);
  }

  void forget() {
    held.clear();
    latest = null;
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
    // Parquet reads what is not data byte by byte, mostly in a row.
    Map.Entry<Long, byte[]> near = latest;
    if (near == null || !has(near, position)) {
      near = held.floorEntry(position);
    }
    if (near != null && has(near, position)) {
      latest = near;
      long within = position - near.getKey();
      int most = (int) Math.min(count, near.getValue().length - within);
      System.arraycopy(near.getValue(), (int) within, into, offset, most);
      return most;
    }
    return BytesStream.readAt(stream, position, into, offset, count);
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
