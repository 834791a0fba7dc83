package io.puffinindex.spark.pages;

import java.io.Closeable;
import java.io.IOException;
import org.apache.iceberg.io.SeekableInputStream;

/** A stream of bytes that can be read at any position. */
final class BytesStream extends SeekableInputStream {
  /** Bytes that can be read at any position. */
  interface Source extends Closeable {
    /** Read some bytes at a position, at least one; return how many, or -1 behind the last byte. */
    int readAt(long position, byte[] into, int offset, int length) throws IOException;
  }

  /** Read some bytes of another stream at a position, as a source does. */
  static int readAt(SeekableInputStream from, long position, byte[] into, int offset, int length)
      throws IOException {
    if (from.getPos() != position) {
      from.seek(position);
    }
    return from.read(into, offset, length);
  }

  private final Source source;
  private long position;

  BytesStream(Source source) {
    this.source = source;
  }

  @Override
  public long getPos() {
    return position;
  }

  @Override
  public void seek(long newPosition) {
    position = newPosition;
  }

  @Override
  public int read() throws IOException {
    byte[] one = new byte[1];
    return read(one, 0, 1) < 0 ? -1 : Byte.toUnsignedInt(one[0]);
  }

  @Override
  public int read(byte[] into, int offset, int length) throws IOException {
    int count = length == 0 ? 0 : source.readAt(position, into, offset, length);
    position += Math.max(count, 0);
    return count;
  }

  @Override
  public void close() throws IOException {
    source.close();
  }
}
