package io.puffinindex.tests;

import java.nio.ByteBuffer;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.zone.ZoneOffsetTransition;
import java.time.zone.ZoneRules;
import java.util.TreeSet;

public class TimeZones {
  /**
   * A line for each zone: its name, and for each change up to 2110 the second, and the offsets
   * before and after it.
   */
  public String changes() {
    StringBuilder lines = new StringBuilder();
    for (String name : new TreeSet<>(ZoneId.getAvailableZoneIds())) {
      ZoneRules rules = ZoneId.of(name).getRules();
      lines.append(name);
      ZoneOffsetTransition change = rules.nextTransition(Instant.ofEpochSecond(-70000000000L));
      while (change != null && change.toEpochSecond() < 4418000000L) {
        lines.append(" ").append(change.toEpochSecond());
        lines.append(" ").append(change.getOffsetBefore().getTotalSeconds());
        lines.append(" ").append(change.getOffsetAfter().getTotalSeconds());
        change = rules.nextTransition(change.getInstant());
      }
      lines.append("\n");
    }
    return lines.toString();
  }

  /**
   * The second at which a clock shows each time, given in seconds of no zone, and what the clock is
   * ahead of UTC then.
   */
  public byte[] seconds(String name, byte[] times) {
    ZoneId zone = ZoneId.of(name);
    ByteBuffer given = ByteBuffer.wrap(times);
    ByteBuffer found = ByteBuffer.allocate(2 * times.length);
    while (given.hasRemaining()) {
      LocalDateTime time = LocalDateTime.ofEpochSecond(given.getLong(), 0, ZoneOffset.UTC);
      found.putLong(time.atZone(zone).toEpochSecond());
      found.putLong(time.atZone(zone).getOffset().getTotalSeconds());
    }
    return found.array();
  }
}
