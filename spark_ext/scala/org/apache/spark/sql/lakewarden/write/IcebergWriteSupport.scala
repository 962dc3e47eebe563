package org.apache.spark.sql.lakewarden.write

import java.util.{ArrayList, HashMap, List => JList}

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.parquet.hadoop.api.WriteSupport.WriteContext
import org.apache.parquet.schema.{GroupType, MessageType, Type}

import org.apache.spark.sql.execution.datasources.parquet.ParquetWriteSupport
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.types._

/** Spark's writing of rows, with an Iceberg field id on every level of the file's schema.
  *
  * Spark itself gives ids to the fields of structs alone; readers of Iceberg need them on the elements of lists
  * and on the keys and values of maps too. What Spark would note of its own schema is left out of the file.
  *
  * Source: Iceberg table specification, "Parquet".
  */
final class IcebergWriteSupport(schema: StructType) extends ParquetWriteSupport {

  override def init(configuration: Configuration): WriteContext = {
    val context = super.init(configuration)
    val notes = new HashMap(context.getExtraMetaData)
    notes.remove(ParquetWriteSupport.SPARK_ROW_SCHEMA)
    notes.remove("org.apache.spark.sql.parquet.row.metadata")
    new WriteContext(NestedIds.message(context.getSchema, schema), notes)
  }
}

/** Puts the ids of list elements, map keys and map values into a Parquet schema. */
private object NestedIds {
  def message(plain: MessageType, schema: StructType): MessageType =
    new MessageType(plain.getName, fields(plain, schema))

  private def fields(group: GroupType, schema: StructType): JList[Type] = {
    val named = new ArrayList[Type]
    group.getFields.asScala.zip(schema.fields).foreach { case (inner, field) =>
      named.add(below(inner, field.dataType, Nil, FieldIds.nested(field)))
    }
    named
  }

  private def below(plain: Type, kind: DataType, way: Seq[String], ids: Map[String, Int]): Type = kind match {
    case nested: StructType => plain.asGroupType.withNewFields(fields(plain.asGroupType, nested))
    case ArrayType(element, _) => repeated(plain.asGroupType, Seq("element" -> element), way, ids)
    case MapType(key, value, _) => repeated(plain.asGroupType, Seq("key" -> key, "value" -> value), way, ids)
    case _ => plain
  }

  /** The one repeated group below a list or a map, with what stands in it. */
  private def repeated(
      outer: GroupType, parts: Seq[(String, DataType)], way: Seq[String], ids: Map[String, Int]): Type = {
    val inner = outer.getType(0).asGroupType
    val named = inner.getFields.asScala.zip(parts).map { case (part, (name, kind)) =>
      val here = way :+ name
      below(part, kind, here, ids).withId(ids(here.mkString(".")))
    }
    outer.withNewFields(inner.withNewFields(named.asJava))
  }
}
