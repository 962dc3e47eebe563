package iceberg

import java.util

import org.apache.spark.sql.connector.catalog.{Identifier, SupportsCatalogOptions, Table}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.lakewarden.catalog.SourceName
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** `format("iceberg")` where no jar registers that name: Spark then looks for the class `iceberg.DefaultSource`.
  *
  * Beside Iceberg's own jar it is never loaded, so that it neither shadows Iceberg's registration nor makes the name
  * ambiguous. Either of them leads names of tables to their catalogs.
  */
final class DefaultSource extends SupportsCatalogOptions {
  override def extractIdentifier(options: CaseInsensitiveStringMap): Identifier = found(options)._2
  override def extractCatalog(options: CaseInsensitiveStringMap): String = found(options)._1.name
  override def inferSchema(options: CaseInsensitiveStringMap): StructType = unnamed(options)
  override def inferPartitioning(options: CaseInsensitiveStringMap): Array[Transform] = Array.empty
  override def getTable(schema: StructType, partitioning: Array[Transform], options: util.Map[String, String]): Table =
    unnamed(new CaseInsensitiveStringMap(options))

  private def found(options: CaseInsensitiveStringMap) = SourceName.resolved(Option(options.get(SourceName.Path)))

  /** Spark asks a catalog for the tables that have a name. */
  private def unnamed(options: CaseInsensitiveStringMap): Nothing = {
    found(options)
    throw new IllegalStateException("A table of a catalog was asked of its format.")
  }
}
