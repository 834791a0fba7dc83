package io.puffinindex.bench;

import java.io.IOException;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.table.sink.BatchTableWrite;

/**
 * The two loops over rows that Python is too slow for: rows go into a Paimon table, and matching rows are counted.
 * Compiled by Janino: no generics, no lambdas.
 */
public final class PaimonLoops {
  private PaimonLoops() {}

  /** Write rows; a column is long[], int[], or int[] with its dictionary of UTF-8 strings. */
  public static void write(BatchTableWrite write, Object[] columns, Object[] dictionaries, int rows) throws Exception {
    BinaryString[][] strings = new BinaryString[columns.length][];
    for (int c = 0; c < columns.length; c++) {
      if (dictionaries[c] != null) {
        String[] words = (String[]) dictionaries[c];
        strings[c] = new BinaryString[words.length];
        for (int i = 0; i < words.length; i++) {
          strings[c][i] = BinaryString.fromString(words[i]);
        }
      }
    }
    for (int r = 0; r < rows; r++) {
      GenericRow row = new GenericRow(columns.length);
      for (int c = 0; c < columns.length; c++) {
        if (strings[c] != null) {
          row.setField(c, strings[c][((int[]) columns[c])[r]]);
        } else if (columns[c] instanceof long[]) {
          row.setField(c, Long.valueOf(((long[]) columns[c])[r]));
        } else {
          row.setField(c, Integer.valueOf(((int[]) columns[c])[r]));
        }
      }
      write.write(row);
    }
  }

  /** Read to the end; give the rows that the reader gave, those that match, and the sum of an INT column (or 0) over them. */
  public static long[] read(RecordReader reader, Predicate predicate, int summed) throws IOException {
    long rows = 0;
    long matches = 0;
    long sum = 0;
    try {
      for (RecordReader.RecordIterator batch = reader.readBatch(); batch != null; batch = reader.readBatch()) {
        for (InternalRow row = (InternalRow) batch.next(); row != null; row = (InternalRow) batch.next()) {
          rows++;
          if (predicate.test(row)) {
            matches++;
            if (summed >= 0) {
              sum += row.getInt(summed);
            }
          }
        }
        batch.releaseBatch();
      }
    } finally {
      reader.close();
    }
    return new long[] {rows, matches, sum};
  }
}
