package io.puffinindex.spark;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.function.UnaryOperator;
import org.apache.commons.collections4.map.LRUMap;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.dynamicpruning.PartitionPruning$;
import scala.Option;
import scala.PartialFunction;
import scala.collection.JavaConverters;

/** Scala's lists, nodes of plans and expressions, and maps. */
public final class Lists {
  private Lists() {}

  /** An immutable list, which is a Seq in both Scala 2.12 and 2.13. */
  public static <T> scala.collection.immutable.List<T> of(List<T> items) {
    return PythonUtils.toSeq(items).toList();
  }

  @SafeVarargs
  @SuppressWarnings("varargs") // nobody writes to the array
  public static <T> scala.collection.immutable.List<T> of(T... items) {
    return of(Arrays.asList(items));
  }

  @SuppressWarnings("deprecation") // what Scala 2.13 has instead is not in 2.12
  public static <T> List<T> from(scala.collection.Iterable<T> items) {
    return JavaConverters.seqAsJavaList(items.toSeq());
  }

  /** What takes the place of nodes of a plan or an expression; a node stays if that is null. */
  public static <N> PartialFunction<N, N> change(Function<N, ? extends N> change) {
    return scala.Function.unlift(node -> Option.<N>apply(change.apply(node)));
  }

  /** The nodes of a class, each before its children; without plans of subqueries. */
  public static <T extends TreeNode<T>, N> List<N> nodes(TreeNode<T> tree, Class<N> type) {
    return from(
        tree.<N>collect(
            scala.Function.unlift(
                node -> Option.<N>apply(type.isInstance(node) ? type.cast(node) : null))));
  }

  /** Puts what attributes are in their place. */
  public static UnaryOperator<Expression> substitution(Map<ExprId, Expression> others) {
    return expression ->
        expression.transform(
            change(node -> node instanceof Attribute column ? others.get(column.exprId()) : null));
  }

  /** Makes of an expression above a projection what it is below. */
  public static UnaryOperator<Expression> below(
      scala.collection.Iterable<NamedExpression> projection) {
    Map<ExprId, Expression> aliases = new HashMap<>();
    for (NamedExpression named : from(projection)) {
      if (named instanceof Alias alias) {
        aliases.put(alias.exprId(), alias.child());
      }
    }
    return substitution(aliases);
  }

  public static List<Expression> conjuncts(Expression condition) {
    return from(PartitionPruning$.MODULE$.splitConjunctivePredicates(condition));
  }

  public static List<Expression> disjuncts(Expression condition) {
    return from(PartitionPruning$.MODULE$.splitDisjunctivePredicates(condition));
  }

  public static Set<String> words(String... lines) {
    return Set.of(String.join(" ", lines).split(" "));
  }

  /** A map that keeps the entries that were used last. */
  public static <K, V> Map<K, V> latest(int most) {
    return Collections.synchronizedMap(new LRUMap<>(most, 16));
  }
}
