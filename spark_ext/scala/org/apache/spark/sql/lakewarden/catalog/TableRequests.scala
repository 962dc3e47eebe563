package org.apache.spark.sql.lakewarden.catalog

import java.util.Locale

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.connector.catalog.{Column, TableCatalog}
import org.apache.spark.sql.connector.catalog.CatalogV2Util
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.options.IcebergNames
import org.apache.spark.sql.lakewarden.schema.{IcebergSchema, PartitionTransforms}
import org.apache.spark.sql.lakewarden.write.DataFormat

/** What Spark wants created, as the catalog takes it. */
object TableRequests {
  private val json = JsonNodeFactory.instance

  /** Spark's own names; the owner that Spark fills in is the user of the driver's operating system. */
  private val SparkNames = Set(
    TableCatalog.PROP_PROVIDER, TableCatalog.PROP_LOCATION, TableCatalog.PROP_OWNER, TableCatalog.PROP_EXTERNAL,
    TableCatalog.PROP_IS_MANAGED_LOCATION)

  /** The body of creating a table (docs/rest-api.md, "Tables").
    *
    * Throws `NotSupportedYet` for formats, types and column clauses that this release does not know, and
    * `PropertyInvalid` for an option that contradicts a property.
    */
  def create(
      name: String, columns: Array[Column], partitions: Array[Transform], properties: Map[String, String])
      : ObjectNode = replace(columns, partitions, properties).put("name", name)

  /** The body of replacing a table. Throws as `create`. */
  def replace(columns: Array[Column], partitions: Array[Transform], properties: Map[String, String]): ObjectNode = {
    columns.foreach(requirePlain)
    val schema = IcebergSchema.toIceberg(CatalogV2Util.v2ColumnsToStructType(columns))
    val body = json.objectNode
    body.set[ObjectNode]("schema", schema)
    body.set[ObjectNode]("partition-spec", PartitionTransforms.toIceberg(partitions.toSeq, schema))
    properties.get(TableCatalog.PROP_LOCATION).foreach(body.put("location", _))
    body.set[ObjectNode]("properties", texts(withFormat(withoutOptions(properties)) -- SparkNames -- LayoutProperties.Names))
    body
  }

  /** The options of a statement that are for the write of its rows. */
  def ofWrites(properties: Map[String, String]): Seq[String] =
    properties.keys.toSeq.filter(_.startsWith(TableCatalog.OPTION_PREFIX))
      .map(_.substring(TableCatalog.OPTION_PREFIX.length)).filter(isOfWrites).sorted

  private def isOfWrites(option: String): Boolean = IcebergNames.write.of(option.toLowerCase(Locale.ROOT)).nonEmpty

  /** Properties as a JSON object. */
  def texts(properties: Map[String, String]): ObjectNode = {
    val node = json.objectNode
    properties.toSeq.sorted.foreach { case (name, value) => node.put(name, value) }
    node
  }

  /** Spark hands OPTIONS over twice, as `k` and `option.k`: equal is one, different is a contradiction. Options of the
    * write are no properties.
    */
  private def withoutOptions(properties: Map[String, String]): Map[String, String] = {
    val (options, plain) = properties.partition(_._1.startsWith(TableCatalog.OPTION_PREFIX))
    options.foldLeft(plain) { case (all, (prefixed, value)) =>
      val name = prefixed.substring(TableCatalog.OPTION_PREFIX.length)
      if (all.get(name).exists(_ != value))
        throw new LakewardenException(
          "PropertyInvalid", s"OPTIONS and TBLPROPERTIES give $name different values.", Some("option"),
          Some("Set it in one of them only."))
      if (isOfWrites(name)) all - name else all + (name -> value)
    }
  }

  /** `USING parquet` and `USING orc` say how files are written; all tables are Iceberg's. */
  private def withFormat(properties: Map[String, String]): Map[String, String] =
    properties.get(TableCatalog.PROP_PROVIDER).map(_.toLowerCase(Locale.ROOT)) match {
      case None | Some("iceberg") => properties
      case Some(format) if DataFormat.All.exists(_.name == format) =>
        if (properties.get(DataFormat.Property).exists(_.toLowerCase(Locale.ROOT) != format))
          throw new LakewardenException(
            "PropertyInvalid", s"USING $format contradicts ${DataFormat.Property}.", Some("table-format"),
            Some("Specify the format once."))
        properties + (DataFormat.Property -> format)
      case Some(other) => throw LakewardenException.notSupportedYet(
          s"Tables USING $other are not supported.", "table-format",
          "Write USING iceberg, parquet or orc; from a DataFrame, use writeTo(name).using(\"iceberg\").create().")
    }

  private def requirePlain(column: Column): Unit = {
    val clause = Seq(
      "a default value" -> column.defaultValue, "a generation expression" -> column.generationExpression,
      "an identity" -> column.identityColumnSpec).collectFirst { case (what, given) if given != null => what }
    clause.foreach { what =>
      throw LakewardenException.notSupportedYet(
        s"The column ${column.name} has $what, which is not supported.", "column-clause",
          "Remove it from the statement.")
    }
  }
}
