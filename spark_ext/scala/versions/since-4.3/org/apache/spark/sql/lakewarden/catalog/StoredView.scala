package org.apache.spark.sql.lakewarden.catalog

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.core.JsonProcessingException
import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.connector.catalog.{Identifier, TableCatalog, TableSummary, View}
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.rest.Answers
import org.apache.spark.sql.lakewarden.schema.{FieldIds, IcebergSchema, PartitionTransforms}

/** A view as the catalog stores it: Iceberg's view metadata. What Spark has to know beside is in the summary of the
  * version.
  *
  * @param catalogName
  *   the catalog's name in this Spark, which names of the view without a catalog mean
  * @param settings
  *   by which the text is read: those of the session that made the view, as far as a session can have them
  */
final class StoredView(
    catalogName: String, ident: Identifier, answer: JsonNode, settings: Map[String, String] => Map[String, String]) {
  import StoredView._

  private val metadata = Answers.field(answer, "metadata")
  private val current = PartitionTransforms.current(metadata, "versions", "version-id", "current-version-id")
  private val summary = Answers.texts(current.required("summary"))

  /** Counts the changes of the view. */
  val version: Int = answer.required("version").intValue

  def view: View = {
    val schema = metadata.required("schemas").elements.asScala.find(
      _.required("schema-id") == current.required("schema-id"))
    val builder = new View.Builder()
    builder.withSchema(FieldIds.strip(IcebergSchema.toSpark(schema.get)))
    builder.withProperties(Answers.texts(metadata.required("properties")).asJava)
    builder.withOwner(Answers.text(answer, "owner"))
    builder.withQueryText(current.required("representations").required(0).required("sql").textValue)
    builder.withCurrentCatalog(Option(current.get("default-catalog")).filter(_.isTextual).fold(catalogName)(_.textValue))
    builder.withCurrentNamespace(texts(current.required("default-namespace")))
    builder.withSqlConfigs(settings(parsed(Settings).fold(Map.empty[String, String])(Answers.texts)).asJava)
    builder.withSchemaMode(summary.getOrElse(SchemaMode, null))
    builder.withQueryColumnNames(parsed(ColumnNames).fold(Array.empty[String])(texts))
    builder.build()
  }

  private def parsed(key: String): Option[JsonNode] = summary.get(key).map { text =>
    try Json.readTree(text)
    catch {
      case error: JsonProcessingException => throw new LakewardenException(
          "MetadataInvalid", s"The view $ident has no valid $key.", Some("view"), Some("Make the view again."), error)
    }
  }
}

object StoredView {
  private val SchemaMode = "spark.schema-mode"
  private val ColumnNames = "spark.query-column-names"
  private val Settings = "spark.sql-configs"

  /** By which name the text means this catalog. */
  private val OwnName = "spark.catalog-name"

  private val json = JsonNodeFactory.instance
  private val Json = new ObjectMapper

  /** The body of creating or replacing a view. Throws `NotSupportedYet` for views that are more than a text. */
  def toRequest(catalogName: String, view: View): ObjectNode = {
    val properties = view.properties.asScala.toMap
    requirePlain(properties)
    val version = json.objectNode
    version.putArray("representations").addObject.put("type", "sql").put("dialect", "spark").put("sql", view.queryText)
    Option(view.currentCatalog).filter(_ != catalogName).foreach(version.put("default-catalog", _))
    version.set[ObjectNode]("default-namespace", array(view.currentNamespace))
    version.set[ObjectNode]("summary", TableRequests.texts(summary(catalogName, view)))
    val body = json.objectNode
    body.set[ObjectNode]("schema", IcebergSchema.toIceberg(view.schema))
    body.set[ObjectNode]("view-version", version)
    body.set[ObjectNode]("properties", TableRequests.texts(properties - TableCatalog.PROP_OWNER - TableCatalog.PROP_TABLE_TYPE))
    body
  }

  private def summary(catalogName: String, view: View): Map[String, String] = Map(
    OwnName -> catalogName,
    ColumnNames -> array(view.queryColumnNames).toString,
    Settings -> TableRequests.texts(view.sqlConfigs.asScala.toMap).toString) ++
    Option(view.schemaMode).map(SchemaMode -> _)

  private def requirePlain(properties: Map[String, String]): Unit = {
    val kind = properties.get(TableCatalog.PROP_TABLE_TYPE).filter(_ != TableSummary.VIEW_TABLE_TYPE)
    kind.foreach(each => throw LakewardenException.notSupportedYet(
      s"Views of the type $each are not supported.", "view-type", "Create a plain view."))
    if (properties.contains(TableCatalog.PROP_COLLATION)) throw LakewardenException.notSupportedYet(
      "A default collation of a view is not supported.", "view-collation", "Remove it from the statement.")
  }

  private def array(texts: Array[String]): JsonNode = {
    val node = json.arrayNode
    texts.foreach(node.add(_))
    node
  }

  private def texts(node: JsonNode): Array[String] = node.elements.asScala.map(_.textValue).toArray
}
