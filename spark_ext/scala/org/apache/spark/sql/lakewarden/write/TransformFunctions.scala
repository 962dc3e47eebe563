package org.apache.spark.sql.lakewarden.write

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.connector.catalog.functions.{BoundFunction, ScalarFunction, UnboundFunction}
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.types._

/** The partition transforms as functions of SQL, by which Spark also clusters and sorts what is written:
  * `system.bucket(16, id)`, `system.truncate(4, name)`, `system.years(ts)`, `months`, `days`, `hours`. And `system.zorder(a, b)`, by which a rewrite sorts.
  */
object TransformFunctions {
  /** The names of the functions. */
  val Names: Seq[String] = Seq("bucket", "truncate", "years", "months", "days", "hours", ZOrder.Name)

  /** The function of a name, in the namespace `system` or in none, as Spark asks for transforms. */
  def load(ident: Identifier): Option[UnboundFunction] = {
    val here = ident.namespace.isEmpty || ident.namespace.sameElements(Array("system"))
    if (here && ident.name == ZOrder.Name) Some(ZOrder)
    else if (here && Names.contains(ident.name)) Some(new TransformFunction(ident.name))
    else None
  }

  /** The transform that a function stands for; the number is that of `bucket` and `truncate`. */
  private[write] def transform(name: String, number: Int): PartitionTransform = name match {
    case "bucket" => Bucket(number)
    case "truncate" => Truncate(number)
    case _ => TimeTransform(name.stripSuffix("s"))
  }
}

/** A transform whose column is not known yet. */
final class TransformFunction(override val name: String) extends UnboundFunction {
  private val takesNumber = name == "bucket" || name == "truncate"

  override def description: String = s"The partition transform $name"

  override def bind(input: StructType): BoundFunction = input.map(_.dataType) match {
    case Seq(ByteType | ShortType | IntegerType, source) if takesNumber => bound(source)
    case Seq(source) if !takesNumber => bound(source)
    case _ => throw new UnsupportedOperationException(
        s"$name takes " + (if (takesNumber) "a number and a column" else "one column"))
  }

  private def bound(asked: DataType): BoundFunction = {
    val source = asked match {
      case ByteType | ShortType => IntegerType
      case _: StringType => StringType
      case other => other
    }
    try TransformFunctions.transform(name, 1).on(source)
    catch { case refused: LakewardenException => throw new UnsupportedOperationException(refused.getMessage) }
    if (takesNumber) NumberedFunction(name, source) else TimeFunction(name, source)
  }
}

/** A transform of a number and a column: a bucket of so many, a value cut to a width. */
final case class NumberedFunction(override val name: String, source: DataType) extends ScalarFunction[Any] {
  override def inputTypes: Array[DataType] = Array(IntegerType, source)
  override def resultType: DataType = TransformFunctions.transform(name, 1).resultType(source)
  override def canonicalName: String = s"lakewarden.$name(${source.catalogString})"
  override def toString: String = name

  @transient private lazy val accessor = InternalRow.getAccessor(source)
  @transient private var last: (Int, Any => Any) = _

  override def produceResult(input: InternalRow): Any =
    if (input.isNullAt(0) || input.isNullAt(1)) null else function(input.getInt(0))(accessor(input, 1))

  private def function(number: Int): Any => Any = {
    if (last == null || last._1 != number) {
      if (number <= 0) throw new LakewardenException(
        "RequestInvalid", s"$name takes a number above 0, and not $number.", Some("partition-transform"))
      last = (number, TransformFunctions.transform(name, number).on(source))
    }
    last._2
  }
}

/** A transform of a time. */
final case class TimeFunction(override val name: String, source: DataType) extends ScalarFunction[Any] {
  private val transform = TransformFunctions.transform(name, 1)

  override def inputTypes: Array[DataType] = Array(source)
  override def resultType: DataType = transform.resultType(source)
  override def canonicalName: String = s"lakewarden.$name(${source.catalogString})"
  override def toString: String = name

  @transient private lazy val accessor = InternalRow.getAccessor(source)
  @transient private lazy val function = transform.on(source)

  override def produceResult(input: InternalRow): Any =
    if (input.isNullAt(0)) null else function(accessor(input, 0))
}
