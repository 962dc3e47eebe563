package org.apache.spark.sql.lakewarden.options

import java.util
import java.util.UUID

import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** An option that the plugin gives to a relation of a command: row filters and masks refuse its scan. Spark loads tables
  * again when it begins to run a query, and keeps the options. Its name is another one in each JVM, so that it is none of
  * the options of a statement.
  */
private[lakewarden] object AsStored {
  val Name: String = s"lakewarden-as-stored-${UUID.randomUUID}"

  def isIn(options: CaseInsensitiveStringMap): Boolean = options.containsKey(Name)

  def put(options: CaseInsensitiveStringMap): CaseInsensitiveStringMap = {
    val more = new util.HashMap[String, String](options.asCaseSensitiveMap)
    more.put(Name, "true")
    new CaseInsensitiveStringMap(more)
  }
}
