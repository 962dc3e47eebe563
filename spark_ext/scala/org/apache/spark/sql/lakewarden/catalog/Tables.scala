package org.apache.spark.sql.lakewarden.catalog

import java.util.UUID

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.catalyst.analysis.{NoSuchNamespaceException, NoSuchTableException}
import org.apache.spark.sql.connector.catalog.{Column, Identifier, StagedTable, Table, TableChange}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.rest.{Answers, CatalogClient, CatalogPaths}
import org.apache.spark.sql.lakewarden.schema.{FieldIds, IcebergSchema, PartitionTransforms}
import org.apache.spark.sql.lakewarden.write.{BegunWrite, StagedTarget}
import org.apache.spark.sql.types.StructType

/** The tables of a catalog, as its user may see and change them. Identifiers are names, letter by letter.
  *
  * @param client
  *   asks for the session that the catalog belongs to
  * @param users
  *   ask for the session that runs a plan with one of the tables in it
  * @param wap
  *   the session's settings for write-audit-publish
  * @param layout
  *   the properties of a new table that say how it is sorted
  * @param through
  *   the definer view that tables are read through
  */
final class Tables(
    catalogName: String, client: CatalogClient, paths: CatalogPaths, users: PlanUsers, wap: () => Wap,
    layout: LayoutProperties, through: Option[ThroughView]) {
  private val json = JsonNodeFactory.instance
  private val recent = new RecentLoads

  def load(ident: Identifier): GuardedTable =
    recent.reuse(ident, users.owner(), wap())(Selector.of(ident).fold(load(ident, _.current))(selected(ident, _)))

  /** Told to those with any right on the table, who may be about to create it. */
  def exists(ident: Identifier): Boolean =
    try client.exists(paths.table(levels(ident), ident.name)).getOrElse {
        loaded(ident)
        true
      }
    catch { case _: NoSuchTableException => false }

  /** A state that is chosen by what the table's metadata says. */
  def load(ident: Identifier, choose: TableStates => TableState): GuardedTable =
    try guarded(ident, loaded(ident), choose)
    catch {
      case absent: NoSuchTableException =>
        Selector.of(ident).filter(each => isThere(each.table)).foreach { _ =>
          throw TableStates.refused(
            s"$ident names a state of a table, and the statement another one.", "time-travel", "Name one of them.")
        }
        throw absent
    }

  /** A state of a table, or a table of that very name. Where both are there, neither is taken: a new table in a
    * namespace must not stand in for a branch.
    */
  private def selected(ident: Identifier, selector: Selector): GuardedTable =
    try {
      val table = guarded(selector.table, loaded(selector.table), selector.state)
      if (isThere(ident)) throw TableStates.refused(
        s"$ident is a table, and a branch, tag or snapshot of the table ${selector.table}.", "ambiguous-name",
        "Use VERSION AS OF or the option branch, or rename one of the tables.")
      table
    } catch {
      case hidden: LakewardenException if hidden.kind == "NotAuthorized" =>
        try guarded(ident, loaded(ident), _.current)
        catch { case _: NoSuchTableException => throw hidden }
      case _: NoSuchTableException => guarded(ident, loaded(ident), _.current)
    }

  private def isThere(ident: Identifier): Boolean = client.exists(paths.table(levels(ident), ident.name)).contains(true)

  def create(ident: Identifier, columns: Array[Column], partitions: Array[Transform], properties: Map[String, String])
      : Table = {
    StagedGuardedTable.refuse(TableRequests.ofWrites(properties))
    val body = layout.put(TableRequests.create(ident.name, columns, partitions, properties), properties)
    requireNamespace(ident)
    val answer = Refusals.ofNewTable(ident)(client.post(CatalogPaths.engineTables(levels(ident)), Some(body)))
    guarded(ident, answer, _.current)
  }

  /** Begins a table together with its first write; nothing is visible before its commit. */
  def stage(ident: Identifier, columns: Array[Column], partitions: Array[Transform], properties: Map[String, String])
      : StagedGuardedTable = {
    val body = layout.put(TableRequests.create(ident.name, columns, partitions, properties), properties)
    requireNamespace(ident)
    requireUnaudited(ident, properties)
    val answer = Refusals.ofNewTable(ident)(client.post(CatalogPaths.stagedWrites(levels(ident)), Some(body)))
    staged(ident, answer, TableRequests.ofWrites(properties), replaces = false)
  }

  /** Begins another definition of a table together with its first write; the table stays as it is before the commit. */
  def stageReplacement(
      ident: Identifier, columns: Array[Column], partitions: Array[Transform], properties: Map[String, String])
      : StagedTable = {
    val body = layout.put(TableRequests.replace(columns, partitions, properties), properties)
    val answer = Refusals.ofTable(ident)(client.post(operation(ident, "replace"), Some(body)))
    staged(ident, answer, TableRequests.ofWrites(properties), replaces = true)
  }

  private def staged(ident: Identifier, answer: JsonNode, options: Seq[String], replaces: Boolean): StagedGuardedTable = {
    val table = handle(ident, answer, None, TableStates.Empty)
    val target = new StagedTarget(
      users.client, table.table.nameParts, BegunWrite.parse(Answers.field(answer, "write")))
    if (replaces)
      try requireUnaudited(ident, table.table.properties)
      catch {
        case refused: LakewardenException =>
          target.abort()
          throw refused
      }
    new StagedGuardedTable(table, ident, target, options, replaces)
  }

  /** The rows of a new table, or of a replaced one, would be on main at once. */
  private def requireUnaudited(ident: Identifier, properties: Map[String, String]): Unit =
    if (Wap.isEnabled(properties) && wap() != Wap(None, None)) throw LakewardenException.notSupportedYet(
      s"$ident is to have ${Wap.Enabled}=true, and the session sets spark.wap.id or spark.wap.branch.", "wap",
      "Create the table without rows first, then insert them; to replace a table, unset these settings.")

  /** Spark may come with no change at all, after `DROP COLUMN IF EXISTS`. */
  def alter(ident: Identifier, changes: Seq[TableChange]): Table = {
    if (changes.nonEmpty)
      Refusals.ofTable(ident)(client.post(operation(ident, "alter"), Some(TableChanges.toRequest(changes))))
    load(ident)
  }

  /** @return whether there was one */
  def drop(ident: Identifier, purge: Boolean): Boolean =
    try {
      val query = if (purge) Map("purgeRequested" -> "true") else Map.empty[String, String]
      Refusals.ofTable(ident)(client.delete(paths.table(levels(ident), ident.name), query))
      true
    } catch { case _: NoSuchTableException => false }

  /** A new name without a namespace stays in the old one. */
  def rename(old: Identifier, wanted: Identifier): Unit = {
    if (wanted.namespace.length > 1 && wanted.namespace.head == catalogName)
      throw new LakewardenException(
        "RequestInvalid", s"The new name $wanted begins with the name of the catalog.", Some("identifier"),
        Some("Use TABLE or NAMESPACE.TABLE, without the catalog."))
    val renamed = if (wanted.namespace.isEmpty) Identifier.of(old.namespace, wanted.name) else wanted
    val body = json.objectNode.set[ObjectNode]("source", identifier(old))
    body.set[ObjectNode]("destination", identifier(renamed))
    Refusals.ofTable(old)(Refusals.ofNewTable(renamed)(client.post(paths.rename, Some(body))))
  }

  private def loaded(ident: Identifier, client: CatalogClient = client): JsonNode =
    Refusals.ofTable(ident)(through match {
      case Some(view) => client.post(view.segments("load"), Some(view.put(json.objectNode, levels(ident), ident.name)))
      case None       => client.post(operation(ident, "load"))
    })

  private def guarded(ident: Identifier, answer: JsonNode, choose: TableStates => TableState): GuardedTable = {
    val states = new TableStates(ident.toString, Answers.field(answer, "metadata"), wap())
    val (asOf, branch) = choose(states) match {
      case earlier: AsOf  => (Some(earlier), TableStates.Empty)
      case branch: Branch => (None, branch)
    }
    val loadedNow = handle(ident, answer, asOf, branch)
    def principalNow: String = Viewer.of(loaded(ident, users.client)).principal
    val owner = new SessionUser(loadedNow.table.principal, users.owner(), users.running, () => principalNow)
    new GuardedTable(loadedNow, asOf, owner)
  }

  private def handle(ident: Identifier, answer: JsonNode, asOf: Option[AsOf], branch: Branch): TableHandle = {
    val (metadata, config) = (Answers.field(answer, "metadata"), Answers.field(answer, "config"))
    val own = IcebergSchema.toSpark(schema(metadata, asOf))
    val table = LoadedTable(
      catalogName, ident.namespace.toSeq, ident.name, UUID.fromString(metadata.required("table-uuid").textValue),
      answer.path("metadata-location").asText, if (asOf.isEmpty) own else masksMayBeNull(own, config), metadata,
      Answers.field(answer, "write-settings"), Viewer.of(answer), branch, through)
    TableHandle(table, users.client)
  }

  /** A mask may show NULL in a column that was required at a time when it had none. */
  private def masksMayBeNull(schema: StructType, config: JsonNode): StructType = {
    val masked = Viewer.masked(config)
    StructType(schema.map(each => if (masked(FieldIds.of(each))) each.copy(nullable = true) else each))
  }

  /** Today's, or that of the snapshot asked for. */
  private def schema(metadata: JsonNode, asOf: Option[AsOf]): JsonNode = {
    val snapshots = metadata.path("snapshots").elements.asScala
    val ofSnapshot = asOf.flatMap(each => snapshots.find(_.required("snapshot-id").longValue == each.snapshotId))
      .flatMap(each => Option(each.get("schema-id"))).filter(_.isInt)
    ofSnapshot.flatMap(id => metadata.required("schemas").elements.asScala.find(_.required("schema-id") == id))
      .getOrElse(PartitionTransforms.current(metadata, "schemas", "schema-id", "current-schema-id"))
  }

  private def operation(ident: Identifier, name: String): Seq[String] =
    CatalogPaths.engineTable(levels(ident), ident.name, name)

  /** The levels of the namespace; a table has one. */
  private def levels(ident: Identifier): Seq[String] =
    if (ident.namespace.isEmpty) throw new NoSuchTableException(ident) else ident.namespace.toSeq

  private def requireNamespace(ident: Identifier): Unit =
    if (ident.namespace.isEmpty) throw new NoSuchNamespaceException(ident.namespace)

  private def identifier(ident: Identifier): JsonNode = {
    val namespace = json.arrayNode
    levels(ident).foreach(namespace.add(_))
    json.objectNode.put("name", ident.name).set[ObjectNode]("namespace", namespace)
  }
}
