package io.puffinindex.spark.pages;

import java.io.ByteArrayOutputStream;
import org.apache.iceberg.shaded.org.apache.parquet.io.DelegatingPositionOutputStream;
import org.apache.iceberg.shaded.org.apache.parquet.io.OutputFile;
import org.apache.iceberg.shaded.org.apache.parquet.io.PositionOutputStream;

/** A file in memory that Parquet writes. */
final class MemoryFile implements OutputFile {
  private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();

  byte[] bytes() {
    return bytes.toByteArray();
  }

  @Override
  public PositionOutputStream create(long blockSize) {
    return new DelegatingPositionOutputStream(bytes) {
      @Override
      public long getPos() {
        return bytes.size();
      }
    };
  }

  @Override
  public PositionOutputStream createOrOverwrite(long blockSize) {
    return create(blockSize);
  }

  @Override
  public boolean supportsBlockSize() {
    return false;
  }

  @Override
  public long defaultBlockSize() {
    return 0;
  }
}
