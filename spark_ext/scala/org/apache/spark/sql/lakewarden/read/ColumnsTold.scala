package org.apache.spark.sql.lakewarden.read

import java.util
import java.util.{Optional, OptionalLong}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.connector.expressions.{FieldReference, NamedReference}
import org.apache.spark.sql.connector.read.colstats.ColumnStatistics
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.lakewarden.write.SingleValue
import org.apache.spark.sql.types._

/** What a plan says of the values of its columns, for Spark's optimizer. It decides no row. */
private[read] object ColumnsTold {

  /** By column what is known.
    *
    * @param said
    *   by field id, or null
    * @param wanted
    *   the columns, with ids
    */
  def of(said: JsonNode, wanted: StructType): util.Map[NamedReference, ColumnStatistics] = {
    val found = wanted.fields.flatMap(field => Option(said.get(FieldIds.of(field).toString)).map(field -> _))
    found.map { case (field, each) => (FieldReference(Seq(field.name)): NamedReference) -> told(field.dataType, each) }
      .toMap.asJava
  }

  private def told(dataType: DataType, said: JsonNode): ColumnStatistics = new ColumnStatistics {
    override def nullCount: OptionalLong = count("null-count")
    override def distinctCount: OptionalLong = count("distinct-count")
    override def min: Optional[AnyRef] = value("minimum")
    override def max: Optional[AnyRef] = value("maximum")

    private def count(name: String): OptionalLong =
      Option(said.get(name)).filter(_.isNumber).fold(OptionalLong.empty)(each => OptionalLong.of(each.longValue))

    private def value(name: String): Optional[AnyRef] =
      Option(said.get(name)).filterNot(_.isNull).filter(_ => hasRange)
        .fold(Optional.empty[AnyRef])(each => Optional.of(SingleValue.fromJson(each, dataType).asInstanceOf[AnyRef]))

    /** Spark estimates nothing by those of other types. */
    private def hasRange: Boolean = dataType match {
      case BooleanType | IntegerType | LongType | FloatType | DoubleType | DateType | TimestampType => true
      case _                                                                                        => false
    }
  }
}
