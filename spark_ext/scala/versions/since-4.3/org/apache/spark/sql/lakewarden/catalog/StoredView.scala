package org.apache.spark.sql.lakewarden.catalog

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.core.JsonProcessingException
import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.catalyst.util.QuotingUtils
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
  * @param marked
  *   whether a relation stands for the text of a definer view (`DefinerViews`)
  */
final class StoredView(
    catalogName: String, ident: Identifier, answer: JsonNode, settings: Map[String, String] => Map[String, String],
    marked: Boolean) {
  import StoredView._

  private val metadata = Answers.field(answer, "metadata")
  private val current = PartitionTransforms.current(metadata, "versions", "version-id", "current-version-id")
  private val summary = Answers.texts(current.required("summary"))
  private def schema: JsonNode =
    metadata.required("schemas").elements.asScala.find(_.required("schema-id") == current.required("schema-id")).get

  /** Counts the changes of the view. */
  val version: Int = answer.required("version").intValue

  /** The view in this state, as one that tables are read through. */
  def through: ThroughView = ThroughView(ident, metadata.required("view-uuid").textValue, version)

  /** As a statement loads it. */
  lazy val view: View = {
    val builder = new View.Builder()
    val columns = IcebergSchema.toSpark(schema)
    builder.withSchema(FieldIds.strip(columns))
    builder.withProperties(Answers.texts(metadata.required("properties")).asJava)
    builder.withOwner(Answers.text(answer, "owner"))
    builder.withCurrentCatalog(Option(current.get("default-catalog")).filter(_.isTextual).fold(catalogName)(_.textValue))
    builder.withCurrentNamespace(texts(current.required("default-namespace")))
    builder.withSchemaMode(schemaMode.orNull)
    val names = columnNames(columns.length)
    builder.withQueryText(queryText(names, columns.fieldNames))
    builder.withQueryColumnNames(names)
    builder.withSqlConfigs(readBy(names).asJava)
    builder.build()
  }

  /** Without names of the text's own columns, as other clients store a view, the view's columns are those of the text in
    * their order (Iceberg view specification). Spark would look for them by name. The text of a definer view stays as the
    * catalog has read it.
    */
  private def queryText(names: Array[String], columns: Array[String]): String = {
    val text = current.required("representations").required(0).required("sql").textValue
    if (names.nonEmpty || Answers.text(answer, "security") == Definer) text
    else s"SELECT * FROM (\n$text\n) AS view_columns(${columns.map(QuotingUtils.quoteIdentifier).mkString(", ")})"
  }

  private def readBy(names: Array[String]): Map[String, String] = {
    val own = settings(parsed(Settings)(_.isObject).fold(Map.empty[String, String])(Answers.texts))
    def mark = DefinerViews.setting(catalogName, through, Answers.text(answer, "principal"), names)
    if (marked && Answers.text(answer, "security") == Definer) own + mark else own
  }

  /** Names of tables in the text, which the catalog reads as well, begin with the catalog's name of where it was made. */
  def requireCatalogName(): Unit =
    if (!summary.get(CatalogName).contains(catalogName)) throw LakewardenException.notSupportedYet(
      s"The view $ident is a definer view, and was made where its catalog has another name than $catalogName.",
      "view-text", "Read it in an engine where the catalog has the same name.")

  /** The request for a change that a statement made of this view, if it wrote no text. What decides how the text is read
    * stays as it is stored, whatever the settings of this session: users who set a property do not become the definer.
    */
  def changed(after: View): Option[ObjectNode] =
    if (reading(after) == reading(view)) Some(withProperties(after.properties.asScala.toMap))
    else {
      requireDefiner(after)
      None
    }

  /** What decides how a view is read. */
  private def reading(each: View): Seq[Any] = Seq(
    each.queryText, each.currentCatalog, each.currentNamespace.toSeq, each.sqlConfigs, each.schemaMode,
    each.queryColumnNames.toSeq, each.schema)

  private def withProperties(properties: Map[String, String]): ObjectNode = {
    requirePlain(properties)
    val version = json.objectNode
    Seq("representations", "default-catalog", "default-namespace").foreach { key =>
      Option(current.get(key)).filterNot(_.isNull).foreach(version.set[JsonNode](key, _))
    }
    version.set[ObjectNode]("summary", TableRequests.texts(named(catalogName, properties) ++ summary - "operation"))
    body(schema, version, properties)
  }

  /** A user who changes how a text is read becomes its definer. One who only loaded the text did not write it. */
  private def requireDefiner(after: View): Unit = {
    val definer = Answers.text(answer, "definer")
    if (DefinerViews.isLoaded(after.sqlConfigs) && Answers.text(answer, "principal") != definer)
      throw new LakewardenException(
        "NotAuthorized", s"The view $ident reads its tables with the permissions of $definer.", Some("definer-view"),
        Some("Only its definer can change its schema mode. To become the definer, use ALTER VIEW … AS."))
  }

  private def schemaMode: Option[String] = summary.get(SchemaMode).map { mode =>
    if (SchemaModes(mode)) mode else throw invalid(SchemaMode)
  }

  private def columnNames(count: Int): Array[String] = {
    val names = parsed(ColumnNames)(_.isArray).fold(Array.empty[String])(texts)
    if (names.nonEmpty && names.length != count || names.contains(null)) throw invalid(ColumnNames)
    names
  }

  private def parsed(key: String)(isValid: JsonNode => Boolean): Option[JsonNode] = summary.get(key).map { text =>
    val node =
      try Json.readTree(text)
      catch { case error: JsonProcessingException => throw invalid(key, error) }
    if (isValid(node) && node.elements.asScala.forall(_.isTextual)) node else throw invalid(key)
  }

  private def invalid(key: String, cause: Throwable = null): LakewardenException = new LakewardenException(
    "MetadataInvalid", s"The view $ident has no valid $key.", Some("view"), Some("Make the view again."), cause)
}

object StoredView {
  private val SchemaMode = "spark.schema-mode"
  private val ColumnNames = "spark.query-column-names"
  private val Settings = "spark.sql-configs"
  private val CatalogName = "spark.catalog-name"
  private val Security = "security"
  private val Definer = "definer"

  /** For others, Spark changes the columns of what has the view's name in its own catalog, for every user who reads the view. */
  private val SchemaModes = Set("BINDING", "COMPENSATION")

  private val json = JsonNodeFactory.instance
  private val Json = new ObjectMapper

  /** The body of creating or replacing a view. Throws `NotSupportedYet` for views that are more than a text. */
  def toRequest(catalogName: String, view: View): ObjectNode = {
    val properties = view.properties.asScala.toMap
    requirePlain(properties)
    requireFixed(view)
    val version = json.objectNode
    version.putArray("representations").addObject.put("type", "sql").put("dialect", "spark").put("sql", view.queryText)
    Option(view.currentCatalog).filter(_ != catalogName).foreach(version.put("default-catalog", _))
    version.set[ObjectNode]("default-namespace", array(view.currentNamespace))
    version.set[ObjectNode]("summary", TableRequests.texts(summary(view) ++ named(catalogName, properties)))
    body(IcebergSchema.toIceberg(view.schema), version, properties)
  }

  private def body(schema: JsonNode, version: ObjectNode, properties: Map[String, String]): ObjectNode = {
    val body = json.objectNode
    body.set[ObjectNode]("schema", schema)
    body.set[ObjectNode]("view-version", version)
    body.set[ObjectNode]("properties", TableRequests.texts(properties - TableCatalog.PROP_OWNER - TableCatalog.PROP_TABLE_TYPE))
    body
  }

  /** The catalog reads the text of a definer view, too. */
  private def named(catalogName: String, properties: Map[String, String]): Map[String, String] =
    if (properties.get(Security).contains(Definer)) Map(CatalogName -> catalogName) else Map.empty

  private def summary(view: View): Map[String, String] = Map(
    ColumnNames -> array(view.queryColumnNames).toString,
    Settings -> TableRequests.texts(DefinerViews.stored(view.sqlConfigs.asScala.toMap)).toString) ++
    Option(view.schemaMode).map(SchemaMode -> _)

  private def requirePlain(properties: Map[String, String]): Unit = {
    val kind = properties.get(TableCatalog.PROP_TABLE_TYPE).filter(_ != TableSummary.VIEW_TABLE_TYPE)
    kind.foreach(each => throw LakewardenException.notSupportedYet(
      s"Views of the type $each are not supported.", "view-type", "Create a plain view."))
    if (properties.contains(TableCatalog.PROP_COLLATION)) throw LakewardenException.notSupportedYet(
      "A default collation of a view is not supported.", "view-collation", "Remove it from the statement.")
  }

  private def requireFixed(view: View): Unit =
    Option(view.schemaMode).filterNot(SchemaModes).foreach(mode => throw LakewardenException.notSupportedYet(
      s"A view WITH SCHEMA $mode is not supported.", "view-schema-mode",
      "Use WITH SCHEMA COMPENSATION, and ALTER VIEW … AS when the columns of its tables change."))

  private def array(texts: Array[String]): JsonNode = {
    val node = json.arrayNode
    texts.foreach(node.add(_))
    node
  }

  private def texts(node: JsonNode): Array[String] = node.elements.asScala.map(_.textValue).toArray
}
