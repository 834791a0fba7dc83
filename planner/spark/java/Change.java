package io.puffinindex.spark;

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
}
