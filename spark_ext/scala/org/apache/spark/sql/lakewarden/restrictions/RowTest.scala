package org.apache.spark.sql.lakewarden.restrictions

import java.util

import org.apache.spark.sql.execution.vectorized.WritableColumnVector
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ColumnarBatch, ColumnVector}

/** Which rows of batches a condition is true for. */
private[lakewarden] abstract class RowTest {

  /** Keeps some rows of a batch.
    *
    * @param rows
    *   places in the batch, ascending; the first `count` of them are looked at. Those that are kept come first then
    * @return
    *   how many are kept
    */
  def keep(batch: ColumnarBatch, rows: Array[Int], count: Int): Int

  /** Whether it keeps all that another test keeps; a false answer costs time alone. */
  def isImplied(other: RowTest): Boolean = false
}

private[lakewarden] object RowTest {

  /** @param schema
    *   of the batches, with ids
    */
  def of(predicate: RowPredicate, schema: StructType): RowTest = new RowTests(schema).of(predicate, wanted = true)
}

/** Makes tests of conditions.
  *
  * A condition with NULL in it is neither true nor false. So each part is made as the test for one of the two, and a
  * negation changes which.
  */
private final class RowTests(schema: StructType) {

  /** @param wanted
    *   whether the rows are wanted for which the condition is true; else those for which it is false
    */
  def of(predicate: RowPredicate, wanted: Boolean): RowTest = predicate match {
    case Always(value)                     => new ConstantTest(value == wanted)
    case Not(child)                        => of(child, !wanted)
    case Both(left, right) if wanted       => both(of(left, wanted), of(right, wanted))
    case Both(left, right)                 => either(of(left, wanted), of(right, wanted))
    case Either(left, right) if wanted     => either(of(left, wanted), of(right, wanted))
    case Either(left, right)               => both(of(left, wanted), of(right, wanted))
    case IsNull(column)                    => new NullTest(path(column), wanted)
    case IsNaN(column)                     => new NaNTest(path(column), wanted, kind(column))
    case Compared(comparison, column, value) =>
      NumberTests.of(path(column), wanted, comparison, kind(column), value)
        .getOrElse(new ValueTest(path(column), wanted, ValueMatch.of(comparison, kind(column), value)))
    case OneOf(column, values)             => new ValueTest(path(column), wanted, ValueMatch.oneOf(kind(column), values))
  }

  /** The catalog says beside each comparison whether it holds for NULL and NaN, which most tests know by themselves. */
  private def both(left: RowTest, right: RowTest): RowTest = (left, right) match {
    case (one, other) if one.isImplied(other) => other
    case (one, other) if other.isImplied(one) => one
    case (BothTest(first, one), other) if one.isImplied(other) || other.isImplied(one) => BothTest(first, both(one, other))
    case _                                    => BothTest(left, right)
  }

  private def either(left: RowTest, right: RowTest): RowTest =
    if (left.isImplied(right)) left else if (right.isImplied(left)) right else new EitherTest(left, right)

  private def path(column: Int): Array[Int] = way(schema, column).map(_._1).toArray
  private def kind(column: Int): DataType = way(schema, column).last._2

  /** The way to a column through structs: places and types. */
  private def way(struct: StructType, column: Int): Seq[(Int, DataType)] = {
    def in(part: StructType): Option[Seq[(Int, DataType)]] = part.fields.zipWithIndex.view.flatMap {
      case (field, at) if FieldIds.of(field) == column => Some(Seq(at -> field.dataType))
      case (field, at) => field.dataType match {
          case inner: StructType => in(inner).map((at, inner) +: _)
          case _                 => None
        }
    }.headOption
    in(struct).getOrElse(throw new IllegalArgumentException(s"no column with the id $column"))
  }
}

private final class ConstantTest(value: Boolean) extends RowTest {
  override def keep(batch: ColumnarBatch, rows: Array[Int], count: Int): Int = if (value) count else 0
}

private final case class BothTest(left: RowTest, right: RowTest) extends RowTest {
  override def keep(batch: ColumnarBatch, rows: Array[Int], count: Int): Int =
    right.keep(batch, rows, left.keep(batch, rows, count))
}

private final class EitherTest(left: RowTest, right: RowTest) extends RowTest {
  private var other = Array.emptyIntArray
  private var all = Array.emptyIntArray

  override def keep(batch: ColumnarBatch, rows: Array[Int], count: Int): Int = {
    if (all.length < count) {
      all = new Array[Int](rows.length)
      other = new Array[Int](rows.length)
    }
    System.arraycopy(rows, 0, all, 0, count)
    val first = left.keep(batch, rows, count)
    if (first == count) count
    else {
      System.arraycopy(rows, 0, other, 0, first)
      merged(other, first, all, right.keep(batch, all, count), rows)
    }
  }

  /** The rows of either, ascending. */
  private def merged(one: Array[Int], ones: Int, two: Array[Int], twos: Int, out: Array[Int]): Int = {
    var (i, j, count) = (0, 0, 0)
    while (i < ones || j < twos) {
      val next = if (j == twos || (i < ones && one(i) <= two(j))) one(i) else two(j)
      if (i < ones && one(i) == next) i += 1
      if (j < twos && two(j) == next) j += 1
      out(count) = next
      count += 1
    }
    count
  }
}

/** A test of one column, nested in structs or not: where one of them is NULL, it is. */
private[restrictions] abstract class ColumnTest(private val path: Array[Int]) extends RowTest {
  private val structs = new Array[ColumnVector](path.length - 1)

  override def keep(batch: ColumnarBatch, rows: Array[Int], count: Int): Int = {
    var column = batch.column(path(0))
    var at = 1
    while (at < path.length) {
      structs(at - 1) = column
      column = column.getChild(path(at))
      at += 1
    }
    kept(column, rows, count)
  }

  protected def kept(column: ColumnVector, rows: Array[Int], count: Int): Int

  /** Whether a row is kept whose value is NULL, or NaN. */
  def keepsNull: Boolean = false
  def keepsNaN: Boolean = true

  protected final def isBeside(other: ColumnTest): Boolean = util.Arrays.equals(path, other.path)

  protected final def canBeNull(column: ColumnVector): Boolean = column.hasNull || structs.exists(_.hasNull)

  protected final def isNull(column: ColumnVector, row: Int): Boolean = {
    var at = 0
    while (at < structs.length) {
      if (structs(at).isNullAt(row)) return true
      at += 1
    }
    column.isNullAt(row)
  }
}

private final class NullTest(path: Array[Int], wanted: Boolean) extends ColumnTest(path) {
  override def keepsNull: Boolean = wanted

  override def isImplied(other: RowTest): Boolean = other match {
    case test: ColumnTest => !wanted && isBeside(test) && !test.keepsNull
    case _                => false
  }

  override protected def kept(column: ColumnVector, rows: Array[Int], count: Int): Int = {
    var (at, left) = (0, 0)
    while (at < count) {
      val row = rows(at)
      if (isNull(column, row) == wanted) {
        rows(left) = row
        left += 1
      }
      at += 1
    }
    left
  }
}

/** @param wanted
  *   whether the values are wanted that match; else those that do not. NULL is neither
  */
private class ValueTest(path: Array[Int], wanted: Boolean, matching: ValueMatch) extends ColumnTest(path) {
  private val known = new KnownMatches(matching)

  override protected def kept(column: ColumnVector, rows: Array[Int], count: Int): Int = {
    val found = column match {
      case spark: WritableColumnVector if spark.hasDictionary && matching.isSlow => known.of(spark)
      case _                                                                     => matching
    }
    var (at, left) = (0, 0)
    while (at < count) {
      val row = rows(at)
      if (!isNull(column, row) && found(column, row) == wanted) {
        rows(left) = row
        left += 1
      }
      at += 1
    }
    left
  }
}

/** @param wanted
  *   whether NaN is wanted; else numbers
  */
private final class NaNTest(path: Array[Int], wanted: Boolean, kind: DataType)
    extends ValueTest(path, wanted, ValueMatch.isNaN(kind)) {
  override def keepsNaN: Boolean = wanted

  override def isImplied(other: RowTest): Boolean = other match {
    case test: ColumnTest => !wanted && isBeside(test) && !test.keepsNull && !test.keepsNaN
    case _                => false
  }
}

/** Which values of a dictionary match: each is compared once a batch. */
private final class KnownMatches(matching: ValueMatch) extends ValueMatch {
  private var (ids, batch) = (null: WritableColumnVector, 0)

  /** By id of the dictionary the batch in which it was compared, and in the last bit the answer. */
  private var answers = new Array[Int](256)

  def of(column: WritableColumnVector): ValueMatch = {
    ids = column.getDictionaryIds
    batch += 2
    this
  }

  override def apply(values: ColumnVector, row: Int): Boolean = {
    val id = ids.getDictId(row)
    if (id >= answers.length) answers = util.Arrays.copyOf(answers, 2 * (id + 1))
    if (answers(id) < batch) answers(id) = if (matching(values, row)) batch + 1 else batch
    answers(id) > batch
  }
}
