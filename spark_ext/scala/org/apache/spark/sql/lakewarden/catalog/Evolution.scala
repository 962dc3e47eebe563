package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.connector.catalog.TableChange.{AddColumn, ColumnChange, UpdateColumnType}
import org.apache.spark.sql.types._

/** Which changes a statement `WITH SCHEMA EVOLUTION` makes: new columns, and wider types. */
object Evolution {

  /** Else Spark casts the rows, or refuses them. */
  def canMake(change: ColumnChange, schema: StructType): Boolean = change match {
    case _: AddColumn => true
    case update: UpdateColumnType =>
      val found = schema.findNestedField(update.fieldNames.toSeq, includeCollections = true)
      found.exists(each => isWider(each._2.dataType, update.newDataType))
    case _ => false
  }

  /** As the catalog allows it in ALTER TABLE. */
  private def isWider(before: DataType, after: DataType): Boolean = (before, after) match {
    case (IntegerType, LongType) | (FloatType, DoubleType) => true
    case (from: DecimalType, to: DecimalType) => from.scale == to.scale && from.precision < to.precision
    case _                                    => false
  }
}
