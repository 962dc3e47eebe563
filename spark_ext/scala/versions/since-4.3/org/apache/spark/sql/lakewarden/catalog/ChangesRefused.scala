package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.connector.catalog.{Changelog, ChangelogContext, Identifier, TableCatalog}
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** `SELECT … FROM t CHANGES`, which Spark would refuse without a condition. */
trait ChangesRefused extends TableCatalog {
  override def loadChangelog(
      ident: Identifier, context: ChangelogContext, options: CaseInsensitiveStringMap): Changelog =
    throw LakewardenException.notSupportedYet(
      s"CHANGES of $name.$ident is not supported.", "changelog",
      "To read appended rows, use the read option start-snapshot-id.")
}
