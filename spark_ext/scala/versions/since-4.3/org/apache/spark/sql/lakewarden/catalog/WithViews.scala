package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.catalyst.analysis.NoSuchTableException
import org.apache.spark.sql.connector.catalog.{Identifier, Relation, RelationCatalog, TableSummary, View}
import org.apache.spark.sql.lakewarden.LakewardenException

/** A catalog of tables and views, which share one name space. */
trait WithViews extends RelationCatalog {
  protected def viewRequests: ViewRequests

  /** By which settings the text of a view is read, of those that are stored with it. */
  protected def viewSettings(stored: Map[String, String]): Map[String, String]

  /** The definer view whose text is read in this session; none: statements of a user are. */
  protected def through: Option[ThroughView]

  private lazy val views = new Views(name, viewRequests, viewSettings)

  override def loadRelation(ident: Identifier): Relation = through match {
    case Some(view) if view.ident == ident => views.text(view)
    case Some(view) =>
      try loadTable(ident)
      catch { case _: NoSuchTableException => throw views.noTable(view, ident) }
    case None => loadAny(ident)
  }

  private def loadAny(ident: Identifier): Relation =
    try loadTable(ident)
    catch {
      case absent: NoSuchTableException => views.find(ident).getOrElse(throw absent)
      // A right on columns of a view is none on a table that is not there.
      case refused: LakewardenException if refused.kind == "NotAuthorized" =>
        views.readable(ident).getOrElse(throw refused)
    }

  /** Names alone. Spark loads each table for its type, so that one which is refused would hide all others. */
  override def listTableSummaries(namespace: Array[String]): Array[TableSummary] =
    listTables(namespace).map(TableSummary.of(_, TableSummary.FOREIGN_TABLE_TYPE))

  override def loadView(ident: Identifier): View = views.load(ident)
  override def viewExists(ident: Identifier): Boolean = views.exists(ident)
  override def listViews(namespace: Array[String]): Array[Identifier] = viewRequests.list(namespace)
  override def createView(ident: Identifier, view: View): View = views.create(ident, view)
  override def replaceView(ident: Identifier, view: View): View = views.replace(ident, view)
  override def createOrReplaceView(ident: Identifier, view: View): View = views.createOrReplace(ident, view)
  override def dropView(ident: Identifier): Boolean = views.drop(ident)
  override def renameView(ident: Identifier, renamed: Identifier): Unit = views.rename(ident, renamed)
}
