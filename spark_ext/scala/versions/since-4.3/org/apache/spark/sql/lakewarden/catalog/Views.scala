package org.apache.spark.sql.lakewarden.catalog

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.catalyst.analysis.{NoSuchNamespaceException, NoSuchViewException, ViewAlreadyExistsException}
import org.apache.spark.sql.connector.catalog.{Identifier, View}
import org.apache.spark.sql.lakewarden.LakewardenException

/** The views of a catalog, as its user may see and change them.
  *
  * @param catalogName
  *   the catalog's name in this Spark
  * @param settings
  *   by which the text of a view is read, of those that are stored with it
  */
final class Views(catalogName: String, requests: ViewRequests, settings: Map[String, String] => Map[String, String]) {

  /** The views that statements of the session have loaded, which they change. */
  private val loaded = new ConcurrentHashMap[Identifier, StoredView]

  def find(ident: Identifier): Option[View] =
    if (ident.namespace.isEmpty) None
    else requests.load(ident).map { answer =>
      val stored = new StoredView(catalogName, ident, answer, settings, marked = true)
      loaded.put(ident, stored)
      stored.view
    }

  /** A view with its text, where the text of this view is what is read. */
  def text(view: ThroughView): View = {
    val answer = requests.load(view.ident).getOrElse(throw new NoSuchViewException(view.ident))
    val stored = new StoredView(catalogName, view.ident, answer, settings, marked = false)
    if (stored.through != view) throw new LakewardenException(
      "TableChanged", s"The view ${view.ident} was changed while the query was planned.", Some("view-changed"),
      Some("Run the query again."))
    stored.requireCatalogName()
    stored.view
  }

  /** What refuses a name in the text of a definer view. */
  def noTable(view: ThroughView, ident: Identifier): LakewardenException = LakewardenException.notSupportedYet(
    s"The view ${view.ident} is a definer view, and its text names $ident, which is no table.", "view-text",
    "Ask its definer to read tables in it, and no views.")

  /** A view that the user can read; whether there is another is not told. */
  def readable(ident: Identifier): Option[View] =
    try find(ident)
    catch { case refused: LakewardenException if refused.kind == "NotAuthorized" => None }

  def load(ident: Identifier): View = find(ident).getOrElse(throw new NoSuchViewException(ident))

  def exists(ident: Identifier): Boolean = ident.namespace.nonEmpty && requests.exists(ident)

  def create(ident: Identifier, view: View): View = {
    requireNamespace(ident)
    refusals(ident, ident)(requests.create(ident, StoredView.toRequest(catalogName, view)))
    view
  }

  /** Of the state that the statement has loaded before. */
  def replace(ident: Identifier, view: View): View = {
    val before = Option(loaded.remove(ident))
    val body = before.flatMap(_.changed(view)).getOrElse(StoredView.toRequest(catalogName, view))
    refusals(ident, ident)(requests.replace(ident, body, before.map(_.version)))
    view
  }

  def createOrReplace(ident: Identifier, view: View): View = {
    requireNamespace(ident)
    if (exists(ident)) {
      loaded.remove(ident)
      replace(ident, view)
    } else create(ident, view)
  }

  /** @return whether there was one */
  def drop(ident: Identifier): Boolean =
    try {
      refusals(ident, ident)(requests.drop(ident))
      true
    } catch { case _: NoSuchViewException => false }

  /** A new name without a namespace stays in the old one. */
  def rename(ident: Identifier, wanted: Identifier): Unit = {
    val renamed = if (wanted.namespace.isEmpty) Identifier.of(ident.namespace, wanted.name) else wanted
    refusals(ident, renamed)(requests.rename(ident, renamed))
  }

  private def requireNamespace(ident: Identifier): Unit =
    if (ident.namespace.isEmpty) throw new NoSuchNamespaceException(ident.namespace)

  private def refusals(ident: Identifier, made: Identifier)(operation: => Unit): Unit =
    try operation
    catch {
      case refused: LakewardenException => throw (refused.kind match {
          case "NoSuchView"      => new NoSuchViewException(ident)
          case "ViewExists"      => new ViewAlreadyExistsException(made)
          case "NoSuchNamespace" => new NoSuchNamespaceException(made.namespace)
          case _                 => refused
        })
    }
}
