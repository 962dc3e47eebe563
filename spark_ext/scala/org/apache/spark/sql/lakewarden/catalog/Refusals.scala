package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.lakewarden.LakewardenException

/** The few answers of the catalog that Spark has exceptions of its own for, on which `IF EXISTS` and
  * `IF NOT EXISTS` go by. Every other refusal stays what it is: what is not allowed is never "not found".
  */
object Refusals {

  /** For operations on a table that is there. */
  def ofTable[T](ident: Identifier)(operation: => T): T = translate(operation) {
    case "NoSuchTable" | "NoSuchNamespace" => new NoSuchTableException(ident)
  }

  /** For what makes a table of a name. */
  def ofNewTable[T](ident: Identifier)(operation: => T): T = translate(operation) {
    case "TableExists"     => new TableAlreadyExistsException(ident)
    case "NoSuchNamespace" => new NoSuchNamespaceException(ident.namespace)
  }

  /** For operations on a namespace. */
  def ofNamespace[T](namespace: Array[String])(operation: => T): T = translate(operation) {
    case "NoSuchNamespace"   => new NoSuchNamespaceException(namespace)
    case "NamespaceExists"   => new NamespaceAlreadyExistsException(namespace)
    case "NamespaceNotEmpty" => new NonEmptyNamespaceException(namespace)
  }

  private def translate[T](operation: => T)(known: PartialFunction[String, Throwable]): T =
    try operation
    catch { case refused: LakewardenException => throw known.applyOrElse(refused.kind, (_: String) => refused) }
}
