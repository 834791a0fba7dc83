package io.puffinindex.spark;

import java.util.Collection;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;

/** Passes a change of some nodes to Scala's {@code transform}. Janino compiles no subclass of such a class. */
public class Change extends AbstractPartialFunction {
  /** A change of some nodes of a plan or an expression. */
  public interface OfNode {
    /** What takes the place of a node; null if the node stays. */
    Object changed(Object node);
  }

  private final OfNode change;

  public Change(OfNode change) {
    this.change = change;
  }

  public boolean isDefinedAt(Object node) {
    return change.changed(node) != null;
  }

  public Object applyOrElse(Object node, Function1 otherwise) {
    Object changed = change.changed(node);
    return changed == null ? otherwise.apply(node) : changed;
  }

  /** Puts one node in the place of some others. */
  public static class Substitute implements OfNode {
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
}
