package io.puffinindex.spark.conditions;

import io.puffinindex.spark.Lists;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.ArrayContains;
import org.apache.spark.sql.catalyst.expressions.ArrayExists;
import org.apache.spark.sql.catalyst.expressions.ArraysOverlap;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.LambdaFunction;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.MapKeys;
import org.apache.spark.sql.catalyst.expressions.MapValues;
import org.apache.spark.sql.catalyst.expressions.NamedLambdaVariable;
import org.apache.spark.sql.catalyst.expressions.Size;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;

/**
 * What an expression asks of the elements of an array, or of the keys or values of a map.
 *
 * @param value the column, whose rows contain several values
 * @param part what of it: elements, keys or values
 * @param type the type of what it contains
 * @param test what is asked: overlaps, exists, is-empty, is-null or is-not-null
 * @param members the values of which one is looked for, if any
 */
record Contained(
    Expression value, String part, DataType type, String test, List<Expression> members) {
  /** Spark before 4.1 tells the zeros of arrays apart in arrays_overlap. */
  private static final List<Object> ZEROS = Arrays.asList(0.0, -0.0, 0f, -0f);

  /** Reads a condition; null if it asks something else, or compares with something else. */
  static Contained of(Expression condition) {
    if (condition instanceof ArrayContains contains) {
      return of(contains.left(), "overlaps", List.of(contains.right()));
    }
    if (condition instanceof ArraysOverlap overlap) {
      boolean isRight = overlap.right() instanceof Literal;
      Expression list = isRight ? overlap.right() : overlap.left();
      List<Expression> members = elements(list);
      return members == null
          ? null
          : of(isRight ? overlap.left() : overlap.right(), "overlaps", members);
    }
    if (condition instanceof ArrayExists exists
        && exists.function() instanceof LambdaFunction lambda) {
      List<Expression> members = membersOf(lambda.function());
      return members == null ? null : of(exists.argument(), "exists", members);
    }
    if (condition instanceof IsNull || condition instanceof IsNotNull) {
      String test = condition instanceof IsNull ? "is-null" : "is-not-null";
      return of(condition.children().apply(0), test, List.of());
    }
    if (condition instanceof EqualTo equal) {
      boolean isRight = equal.right() instanceof Literal;
      Expression number = isRight ? equal.right() : equal.left();
      Expression other = isRight ? equal.left() : equal.right();
      return other instanceof Size size
              && number instanceof Literal zero
              && Integer.valueOf(0).equals(zero.value())
          ? of(size.child(), "is-empty", List.of())
          : null;
    }
    return null;
  }

  private static Contained of(Expression lists, String test, List<Expression> members) {
    boolean areKeys = lists instanceof MapKeys;
    boolean isOfMap = areKeys || lists instanceof MapValues;
    Expression value = isOfMap ? lists.children().apply(0) : lists;
    if (value.dataType() instanceof MapType map) {
      // The size of a map is the number of its keys.
      DataType type = areKeys || !isOfMap ? map.keyType() : map.valueType();
      return new Contained(value, areKeys || !isOfMap ? "keys" : "values", type, test, members);
    }
    return value.dataType() instanceof ArrayType array
        ? new Contained(value, "elements", array.elementType(), test, members)
        : null;
  }

  /** The values to which a lambda compares its variable; null for another lambda. */
  private static List<Expression> membersOf(Expression body) {
    if (body instanceof EqualTo equal) {
      if (equal.left() instanceof NamedLambdaVariable) {
        return List.of(equal.right());
      }
      return equal.right() instanceof NamedLambdaVariable ? List.of(equal.left()) : null;
    }
    if (body instanceof In in && in.value() instanceof NamedLambdaVariable) {
      return Lists.from(in.list());
    }
    if (body instanceof InSet in && in.child() instanceof NamedLambdaVariable) {
      return members(in);
    }
    return null;
  }

  /** The literals of a long list of IN. */
  static List<Expression> members(InSet in) {
    List<Expression> members = new ArrayList<>();
    Lists.from(in.hset()).forEach(one -> members.add(new Literal(one, in.child().dataType())));
    return members;
  }

  /** The elements of a literal array; null for another expression, and with zeros of doubles. */
  private static List<Expression> elements(Expression list) {
    if (!(list instanceof Literal literal)
        || !(literal.value() instanceof ArrayData data)
        || !(list.dataType() instanceof ArrayType type)) {
      return null;
    }
    List<Expression> members = new ArrayList<>();
    for (int at = 0; at < data.numElements(); at++) {
      Object value = data.get(at, type.elementType());
      if (ZEROS.contains(value)) {
        return null;
      }
      members.add(new Literal(value, type.elementType()));
    }
    return members;
  }
}
