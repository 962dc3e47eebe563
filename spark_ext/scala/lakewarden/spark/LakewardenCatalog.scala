package lakewarden.spark

import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog._
import org.apache.spark.sql.lakewarden.code.ViewSettings
import org.apache.spark.sql.lakewarden.rest.{CatalogClient, CatalogPaths, EngineKeys}
import org.apache.spark.sql.lakewarden.statements.IcebergStatements
import org.apache.spark.sql.lakewarden.write.TransformFunctions
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A Lakewarden catalog in Spark: `spark.sql.catalog.<name>=lakewarden.spark.LakewardenCatalog`.
  *
  * It asks the catalog and obeys; nothing is decided here. Where the catalog is comes from the launch
  * configuration alone; what a session brings is its user's token (`LaunchedCatalog`).
  *
  * Each session has an instance of its own. Spark may call it while another session is the thread's active
  * one, so it asks with the token of the session that it is bound to; what is in a plan asks with that of the
  * session that runs the plan.
  */
final class LakewardenCatalog
    extends StagingTableCatalog
    with TablesLike
    with Changelogs
    with WithViews
    with ReadsViews
    with SupportsNamespaces
    with FunctionCatalog
    with ProcedureCatalog
    with SessionBound {
  private var launched: LaunchedCatalog = _
  private[this] var engine: EngineKeys = _
  @volatile private var session: Option[SparkSession] = None
  @volatile private var readView: Option[ThroughView] = None
  private val viewSessions = new ViewSessions
  private lazy val client: CatalogClient = launched.client(() => own, engine)
  private lazy val paths = new CatalogPaths(client)
  override protected lazy val viewRequests = new ViewRequests(client)
  private lazy val namespaces = new Namespaces(client, paths)
  private lazy val procedures = new Procedures(
    this, client, tables, new SortArguments(IcebergStatements.sortOrder))
  private lazy val users = new PlanUsers(
    launched.client(() => active, engine), () => launched.user(own), () => launched.user(active))
  private lazy val tables =
    new Tables(name, client, paths, users, () => wap, new LayoutProperties(IcebergStatements.sortOrder), through)

  /** A reader's settings do not choose what is read through a view. */
  private def wap: Wap =
    if (through.nonEmpty) Wap(None, None) else Wap.of(own.fold(SQLConf.get)(_.sessionState.conf))

  /** The session that this catalog belongs to; before it is bound, the one that calls. */
  private def own: Option[SparkSession] = session.orElse(active)

  /** The session that runs a plan. Where none is active, there is no user: the session that Spark takes by default
    * can be any user's.
    */
  private def active: Option[SparkSession] = if (through.nonEmpty) own else SparkSession.getActiveSession

  override def bind(session: SparkSession): Unit = if (through.isEmpty) this.session = Some(session)

  override def readThrough(view: ThroughView, reader: SparkSession): Unit = {
    readView = Some(view)
    session = Some(reader)
  }
  override protected def through: Option[ThroughView] = readView
  override def viewSession(view: ThroughView)(make: => SparkSession): SparkSession = viewSessions.of(view)(make)
  override def viewUser(view: Identifier, principal: String): SessionUser = new SessionUser(
    principal, users.owner(), users.running, () => new ViewRequests(users.client).principal(view))

  /** The options that Spark passes are the session's and are not used. */
  override def initialize(name: String, options: CaseInsensitiveStringMap): Unit = {
    launched = LaunchedCatalog.trusted(name)
    engine = LaunchedCatalog.guard(SparkSession.active).engine
  }

  override def name: String = launched.name
  override def toString: String = s"LakewardenCatalog($name)"

  // Namespaces

  override def listNamespaces(): Array[Array[String]] = namespaces.list(Array.empty)
  override def listNamespaces(namespace: Array[String]): Array[Array[String]] = namespaces.list(namespace)
  override def loadNamespaceMetadata(namespace: Array[String]): util.Map[String, String] =
    namespaces.load(namespace).asJava
  override def createNamespace(namespace: Array[String], metadata: util.Map[String, String]): Unit =
    namespaces.create(namespace, metadata.asScala.toMap)
  override def alterNamespace(namespace: Array[String], changes: NamespaceChange*): Unit =
    namespaces.alter(namespace, changes)
  override def dropNamespace(namespace: Array[String], cascade: Boolean): Boolean =
    namespaces.drop(namespace, cascade)

  // Tables

  override def listTables(namespace: Array[String]): Array[Identifier] = namespaces.tables(namespace)
  override def tableExists(ident: Identifier): Boolean =
    MetadataTables.find(ident)(tables.load).nonEmpty || tables.exists(ident)
  override def loadTable(ident: Identifier): Table = loaded(ident)(tables.load)
  override def loadTable(ident: Identifier, version: String): Table =
    loaded(ident)(tables.load(_, _.version(version)))
  override def loadTable(ident: Identifier, timestamp: Long): Table =
    loaded(ident)(tables.load(_, _.timestamp(timestamp)))

  private def loaded(ident: Identifier)(load: Identifier => GuardedTable): Table =
    running[UsersTable](metadataTable(ident)(load).getOrElse(load(ident)))

  /** Through a view there are none. */
  private def metadataTable(ident: Identifier)(load: Identifier => GuardedTable): Option[UsersTable] =
    if (through.nonEmpty) None else MetadataTables.find(ident)(load)

  override protected def changing(ident: Identifier): GuardedTable = running(tables.load(ident))

  /** What is loaded for a plan of another user's session is of no use to it. Spark loads so what it has cached
    * for one user when another has written the table, and forgets the cached rows if it may not.
    */
  private def running[T <: UsersTable](table: T): T = {
    table.user.require(table.name)
    table
  }

  override def createTable(ident: Identifier, info: TableInfo): Table = {
    requireNoConstraints(info)
    if (StreamRule.isCreating) throw StreamRule.creating(s"$name.$ident")
    createTable(ident, info.columns, info.partitions, info.properties)
  }
  override def createTable(
      ident: Identifier, columns: Array[Column], partitions: Array[Transform], properties: util.Map[String, String])
      : Table = tables.create(ident, columns, partitions, properties.asScala.toMap)

  override protected def createLike(ident: Identifier, info: TableInfo, source: Table): Table = {
    requireNoConstraints(info)
    val properties = LikeProperties.of(source, info.properties.asScala.toMap)
    tables.create(ident, info.columns, info.partitions, properties)
  }

  override def alterTable(ident: Identifier, changes: TableChange*): Table = {
    val altered = MetadataTables.changing(ident)(tables.alter(ident, changes))
    invalidateTable(ident)
    altered
  }

  /** REFRESH TABLE. */
  override def invalidateTable(ident: Identifier): Unit = CachedRows.drop(name +: ident.namespace.toSeq :+ ident.name)
  override def dropTable(ident: Identifier): Boolean =
    MetadataTables.changing(ident)(tables.drop(ident, purge = false))
  override def purgeTable(ident: Identifier): Boolean =
    MetadataTables.changing(ident)(tables.drop(ident, purge = true))
  override def renameTable(ident: Identifier, renamed: Identifier): Unit = tables.rename(ident, renamed)

  // Tables that are made, or made anew, together with their first rows

  override def stageCreate(ident: Identifier, info: TableInfo): StagedTable = {
    requireNoConstraints(info)
    stageCreate(ident, info.columns, info.partitions, info.properties)
  }
  override def stageCreate(
      ident: Identifier, columns: Array[Column], partitions: Array[Transform], properties: util.Map[String, String])
      : StagedTable = tables.stage(ident, columns, partitions, properties.asScala.toMap)

  override def stageReplace(ident: Identifier, info: TableInfo): StagedTable = {
    requireNoConstraints(info)
    stageReplace(ident, info.columns, info.partitions, info.properties)
  }
  override def stageReplace(
      ident: Identifier, columns: Array[Column], partitions: Array[Transform], properties: util.Map[String, String])
      : StagedTable = tables.stageReplacement(ident, columns, partitions, properties.asScala.toMap)

  override def stageCreateOrReplace(ident: Identifier, info: TableInfo): StagedTable = {
    requireNoConstraints(info)
    stageCreateOrReplace(ident, info.columns, info.partitions, info.properties)
  }
  override def stageCreateOrReplace(
      ident: Identifier, columns: Array[Column], partitions: Array[Transform], properties: util.Map[String, String])
      : StagedTable =
    if (tableExists(ident)) stageReplace(ident, columns, partitions, properties)
    else stageCreate(ident, columns, partitions, properties)

  // Functions: the partition transforms

  override def listFunctions(namespace: Array[String]): Array[Identifier] =
    if (namespace.sameElements(Array("system"))) TransformFunctions.Names.map(Identifier.of(namespace, _)).toArray
    else Array.empty
  override def loadFunction(ident: Identifier): UnboundFunction =
    TransformFunctions.load(ident).filter(_ => through.isEmpty).getOrElse(throw new NoSuchFunctionException(ident))

  // Procedures: CALL

  override def listProcedures(namespace: Array[String]): Array[Identifier] = procedures.list(namespace)
  override def loadProcedure(ident: Identifier): UnboundProcedure = procedures.load(ident)

  override protected def viewSettings(stored: Map[String, String]): Map[String, String] =
    ViewSettings.of(stored, SQLConf.get)

  private def requireNoConstraints(info: TableInfo): Unit =
    if (info.constraints.nonEmpty)
      throw LakewardenException.notSupportedYet("Table constraints are not supported.", "constraint",
        "Remove them from the statement.")
}
