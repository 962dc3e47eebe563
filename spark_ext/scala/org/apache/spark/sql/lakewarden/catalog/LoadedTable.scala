package org.apache.spark.sql.lakewarden.catalog

import java.util.UUID

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.lakewarden.rest.{Answers, CatalogClient, CatalogPaths}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A table as the catalog answered it, for one user.
  *
  * @param namespace
  *   its levels
  * @param metadataLocation
  *   of its metadata.json; empty for a table that is being created
  * @param schema
  *   the schema to read or write with, field ids in the metadata (`IcebergSchema`)
  * @param metadata
  *   Iceberg's table metadata, governed properties in force among the properties
  * @param writeSettings
  *   how its files are to be written (`WriteSettings`), or what refuses a write
  * @param viewer
  *   for whom and by which rules it was loaded
  * @param branch
  *   what is read and written
  * @param through
  *   the definer view that it is read through
  */
final case class LoadedTable(
    catalogName: String,
    namespace: Seq[String],
    name: String,
    uuid: UUID,
    metadataLocation: String,
    schema: StructType,
    metadata: JsonNode,
    writeSettings: JsonNode,
    viewer: Viewer,
    branch: Branch,
    through: Option[ThroughView] = None) {

  def principal: String = viewer.principal
  def policyVersion: String = viewer.policyVersion

  /** As users write it. */
  def fullName: String = nameParts.mkString(".")

  def nameParts: Seq[String] = catalogName +: namespace :+ name

  /** The address of this table's operations for engines. */
  def engineSegments(operation: String): Seq[String] =
    through.fold(CatalogPaths.engineTable(namespace, name, operation))(_.segments(operation))

  /** The table's properties, governed ones in force among them. */
  def properties: Map[String, String] = Answers.texts(metadata.path("properties"))

  /** Of the schema that is current. */
  def schemaId: Int = Answers.field(metadata, "current-schema-id").intValue

  /** The head of the branch when the table was loaded; none for a branch without rows. */
  def snapshotId: Option[Long] = branch.head

  /** The table as one viewer sees it; by this Spark finds what it has cached for a name. */
  def id: String = (Seq(uuid, principal, policyVersion, viewer.governedVersion) ++ branch.ref ++ through).mkString("/")

  /** The names by which statements can have read the branch. */
  def readNames: Seq[Seq[String]] = nameParts +: branch.ref.map(each => nameParts :+ s"branch_$each").toSeq

  /** What makes two loads the same: nothing that is kept for one user is used for another, or by other rules. */
  def identity: Product = (catalogName, namespace, name, uuid, metadataLocation, viewer, branch, through)
}

/** For whom the catalog answered, and by which rules.
  *
  * @param policyVersion
  *   the policies by which it decided
  * @param governedVersion
  *   of the governed properties in force
  * @param vouched
  *   whether the catalog vouches for the metadata
  * @param masked
  *   ids of the columns that the table masks, and of those that partitions are made from and policies mask
  */
final case class Viewer(
    principal: String, policyVersion: String, governedVersion: String, vouched: Boolean, masked: Set[Int])

object Viewer {

  /** Out of the answer to a load. */
  def of(answer: JsonNode): Viewer = {
    val config = Answers.field(answer, "config")
    Viewer(
      Answers.text(config, "lakewarden.principal"),
      Answers.text(config, "lakewarden.policy-version"),
      Answers.text(config, "lakewarden.governed-version"),
      Answers.text(config, "lakewarden.sealed") == "true",
      masked(config) ++ answer.path("masked-sources").elements.asScala.map(_.intValue))
  }

  /** Ids of the columns that the table masks. */
  def masked(config: JsonNode): Set[Int] =
    Answers.text(config, "lakewarden.masked-fields").split(',').filter(_.nonEmpty).map(_.toInt).toSet
}

/** A table and the way to the catalog as its user. */
final case class TableHandle(table: LoadedTable, client: CatalogClient) {

  /** The same on the branch that the option `branch` names. Throws if it does not exist, or the statement names another. */
  def on(options: CaseInsensitiveStringMap): TableHandle = Option(options.get(TableHandle.BranchOption)).fold(this) { name =>
    val now = table.branch
    if (now.isNamed && now.name != name) throw TableStates.refused(
      s"The statement names the branch '${now.name}' of ${table.fullName}, and the option branch '${name.take(80)}'.",
      "snapshot-reference", "Name the branch once.")
    val chosen = new TableStates(table.fullName, table.metadata, Wap(None, None)).branch(name)
    copy(table = table.copy(branch = chosen.copy(wapId = now.wapId)))
  }
}

object TableHandle {

  /** Of reads and writes. */
  val BranchOption = "branch"
}
