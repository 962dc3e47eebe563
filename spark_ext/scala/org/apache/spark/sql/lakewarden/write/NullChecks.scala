package org.apache.spark.sql.lakewarden.write

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.{ArrayData, MapData}
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.types._

/** Refuses a null where the table's schema has none, on every level.
  *
  * Spark checks this as well, but not under every setting of a session; and a file with such a null is damaged.
  */
private[write] object NullChecks {
  private type Check = Any => Unit

  /** The check of rows of a schema. */
  def of(schema: StructType): InternalRow => Unit = {
    val check = struct(schema, Nil)
    row => check.foreach(_(row))
  }

  private def check(kind: DataType, way: Seq[String]): Option[Check] = kind match {
    case nested: StructType => struct(nested, way)
    case ArrayType(element, nullable) => elements(element, nullable, way :+ "element").map { inner =>
        (value: Any) => inner(value.asInstanceOf[ArrayData])
      }
    case MapType(key, value, nullable) => map(key, value, nullable, way)
    case _ => None
  }

  private def struct(schema: StructType, way: Seq[String]): Option[Check] = {
    val parts = schema.fields.zipWithIndex.flatMap { case (field, ordinal) =>
      val here = way :+ field.name
      one(check(field.dataType, here), field.nullable, here).map { inner =>
        val get = InternalRow.getAccessor(field.dataType)
        (row: InternalRow) => inner(if (row.isNullAt(ordinal)) null else get(row, ordinal))
      }
    }
    if (parts.isEmpty) None else Some(value => parts.foreach(_(value.asInstanceOf[InternalRow])))
  }

  private def elements(kind: DataType, nullable: Boolean, way: Seq[String]): Option[ArrayData => Unit] =
    one(check(kind, way), nullable, way).map { inner => array =>
      array.foreach(kind, (_, value) => inner(value))
    }

  private def map(key: DataType, value: DataType, nullable: Boolean, way: Seq[String]): Option[Check] = {
    val keys = elements(key, nullable = false, way :+ "key")
    val values = elements(value, nullable, way :+ "value")
    if (keys.isEmpty && values.isEmpty) None
    else Some { whole =>
      keys.foreach(_(whole.asInstanceOf[MapData].keyArray()))
      values.foreach(_(whole.asInstanceOf[MapData].valueArray()))
    }
  }

  /** The check of one value that may be null; none where nothing can be wrong. */
  private def one(inner: Option[Check], nullable: Boolean, way: Seq[String]): Option[Check] =
    if (nullable) inner.map(next => value => if (value != null) next(value))
    else Some(value => if (value == null) throw refused(way) else inner.foreach(_(value)))

  private def refused(way: Seq[String]): LakewardenException = new LakewardenException(
    "NullNotAllowed", s"The column ${way.mkString(".")} is NOT NULL, and a row has no value for it.",
    Some("not-null"), Some("Give every row a value, or ALTER TABLE … ALTER COLUMN … DROP NOT NULL."))
}
