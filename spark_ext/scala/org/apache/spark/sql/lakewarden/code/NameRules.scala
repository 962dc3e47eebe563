package org.apache.spark.sql.lakewarden.code

import java.util.Locale

import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.{FunctionIdentifier, TableIdentifier}
import org.apache.spark.sql.catalyst.analysis.AnalysisContext
import org.apache.spark.sql.catalyst.catalog.CatalogTableType
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, CatalogV2Util, Identifier}
import org.apache.spark.sql.execution.datasources.DataSource

/** What names of tables and functions in a statement stand for, told without opening a file and without making
  * an instance of a user's class.
  *
  * Each answer is what is wrong, if anything.
  */
final class NameRules(session: SparkSession) {
  import NameRules._

  /** A name in FROM, or of a table to write: a table of a catalog, a view, or else files by path. */
  def ofRelation(name: Seq[String]): Option[String] =
    if (sessionCatalog.isTempView(name)) None
    else {
      if (isFile(name)) Some(s"Reading ${shown(name)}, which names files by path or by a data source,")
      else catalogOf(inContext(name)) match {
        case Some((catalog, ident)) if CatalogV2Util.isSessionCatalog(catalog) => ofSessionTable(name, ident)
        case Some((catalog, _))                                               => ofCatalog(catalog, shown(name))
        case None                                                             => None
      }
    }

  /** A table in a plan by its catalog: one that the administrator launched Spark with. */
  def ofTable(catalog: Option[CatalogPlugin], name: String): Option[String] = catalog match {
    case Some(known) => ofCatalog(known, name)
    case None        => Some(s"The data source $name, which no catalog names,")
  }

  /** Whether a new table, function or view of this name would be in Spark's own catalog. */
  def isInSessionCatalog(name: Seq[String]): Boolean =
    catalogOf(inContext(name)).exists(found => CatalogV2Util.isSessionCatalog(found._1))

  /** A function in an expression or in FROM. */
  def ofFunction(name: Seq[String], internal: Boolean = false): Option[String] = {
    val plain = name.last.toLowerCase(Locale.ROOT)
    val qualifier = name.init.map(_.toLowerCase(Locale.ROOT))
    lazy val refused = Some(s"The function ${shown(name)}")
    if (internal) if (Harmless.functions(plain)) None else refused
    else if (Unqualified.contains(qualifier)) registered(plain) match {
      case Some(found) if found.getSource == "built-in" => if (Harmless.functions(plain)) None else refused
      case Some(found)                                  => if (found.getSource == Sql) None else refused
      case None if qualifier.isEmpty                    => ofPersistentFunction(name)
      case None                                         => None
    }
    else ofPersistentFunction(name)
  }

  private def registered(name: String): Option[ExpressionInfo] =
    sessionCatalog.lookupBuiltinOrTempFunction(name).orElse(sessionCatalog.lookupBuiltinOrTempTableFunction(name))

  /** Functions of Spark's own catalog are classes, which Spark makes an instance of as soon as they are named. */
  private def ofPersistentFunction(name: Seq[String]): Option[String] = catalogOf(inContext(name)) match {
    case Some((catalog, ident)) if CatalogV2Util.isSessionCatalog(catalog) =>
      val id = FunctionIdentifier(ident.name, ident.namespace.lastOption)
      if (sessionCatalog.functionExists(id)) Some(s"The function ${shown(name)}") else None
    case Some((catalog, _)) => ofCatalog(catalog, shown(name))
    case None               => None
  }

  private def ofSessionTable(name: Seq[String], ident: Identifier): Option[String] = {
    val id = TableIdentifier(ident.name, ident.namespace.lastOption)
    if (ident.namespace.length > 1 || !sessionCatalog.tableExists(id)) None
    else if (sessionCatalog.getTableMetadata(id).tableType == CatalogTableType.VIEW) None
    else Some(s"The table ${shown(name)} of Spark's own catalog, whose files are read by path,")
  }

  private def ofCatalog(catalog: CatalogPlugin, name: String): Option[String] =
    if (CatalogV2Util.isSessionCatalog(catalog)) Some(s"The table $name of Spark's own catalog")
    else if (session.sparkContext.conf.contains(s"spark.sql.catalog.${catalog.name}")) None
    else if (catalog.name == System) None
    else Some(s"The catalog ${catalog.name}, which was not defined when Spark was launched,")

  /** As Spark decides it (`ResolveSQLOnFile`), except that the namespace is not looked for first. */
  private def isFile(parts: Seq[String]): Boolean =
    parts.length == 2 && !session.sessionState.catalogManager.isCatalogRegistered(parts.head) && isSource(parts.head)

  /** What Spark finds a data source by: short names, names of classes, and names that those once had. */
  private def isSource(name: String): Boolean =
    try {
      DataSource.lookupDataSource(name, session.sessionState.conf) // initializes no class of a user's
      true
    } catch {
      case _: ClassNotFoundException   => session.sessionState.dataSourceManager.dataSourceExists(name)
      case NonFatal(_) | _: LinkageError => true
    }

  /** A name inside a view is one of the catalog and namespace that the view was made in. */
  private def inContext(name: Seq[String]): Seq[String] = {
    val context = AnalysisContext.get.catalogAndNamespace
    if (context.isEmpty) name
    else if (name.length == 1) context ++ name
    else if (session.sessionState.catalogManager.isCatalogRegistered(name.head)) name
    else context.head +: name
  }

  private def catalogOf(name: Seq[String]): Option[(CatalogPlugin, Identifier)] = {
    val lookup = session.sessionState.analyzer.CatalogAndIdentifier
    lookup.unapply(name)
  }

  private def sessionCatalog = session.sessionState.catalog
}

object NameRules {
  private val Sql = "sql_udf"
  private val System = "system"
  private val Unqualified = Set[Seq[String]](
    Nil, Seq("builtin"), Seq("session"), Seq("system", "builtin"), Seq("system", "session"))

  private def shown(name: Seq[String]): String = name.map(part => s"`$part`").mkString(".")
}
