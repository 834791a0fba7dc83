package io.puffinindex.spark;

import java.util.Collection;

/** Puts one node in the place of some others. */
public class Substitute implements Change.OfNode {
  private final Collection<?> places;
  private final Object other;

  public Substitute(Collection<?> places, Object other) {
    this.places = places;
    this.other = other;
  }

  public Object changed(Object node) {
    return places.contains(node) ? other : null;
  }
}
