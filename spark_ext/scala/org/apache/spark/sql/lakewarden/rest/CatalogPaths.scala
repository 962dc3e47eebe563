package org.apache.spark.sql.lakewarden.rest

/** The addresses of a catalog's Iceberg REST operations, below the prefix that the catalog itself names. */
final class CatalogPaths(client: CatalogClient) {
  private lazy val prefix: String =
    Answers.text(client.get(Seq("v1", "config")).path("overrides"), "prefix")

  def namespaces: Seq[String] = Seq("v1", prefix, "namespaces")
  def namespace(levels: Seq[String]): Seq[String] = namespaces :+ levels.mkString(CatalogPaths.Separator)
  def namespaceProperties(levels: Seq[String]): Seq[String] = namespace(levels) :+ "properties"
  def tables(levels: Seq[String]): Seq[String] = namespace(levels) :+ "tables"
  def table(levels: Seq[String], name: String): Seq[String] = tables(levels) :+ name
  def rename: Seq[String] = Seq("v1", prefix, "tables", "rename")
}

object CatalogPaths {

  /** Joins the levels of a namespace in an address (Iceberg REST specification, parameter "namespace"). */
  val Separator = "\u001f"

  /** An engine's operation on a table. */
  def engineTable(levels: Seq[String], name: String, operation: String): Seq[String] =
    Seq("engine", "v1", "tables", levels.mkString(Separator), name, operation)

  /** Where an engine creates tables, encrypted or not. */
  def engineTables(levels: Seq[String]): Seq[String] =
    Seq("engine", "v1", "namespaces", levels.mkString(Separator), "tables")

  /** Where an engine begins tables together with their first rows. */
  def stagedWrites(levels: Seq[String]): Seq[String] =
    Seq("engine", "v1", "namespaces", levels.mkString(Separator), "staged-writes")

  /** Where an engine lists and creates views. */
  def engineViews(levels: Seq[String]): Seq[String] =
    Seq("engine", "v1", "namespaces", levels.mkString(Separator), "views")

  def engineView(levels: Seq[String], name: String): Seq[String] =
    Seq("engine", "v1", "views", levels.mkString(Separator), name)

  val renameView: Seq[String] = Seq("engine", "v1", "views", "rename")
}
