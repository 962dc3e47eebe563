package org.apache.spark.sql.lakewarden.schema

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.types.StructType

/** Iceberg's schemas as Spark's.
  *
  * The field ids stand in the fields' metadata under `parquet.field.id`, as Spark's Parquet reader and writer
  * take them; those of list elements, map keys and map values in the metadata of the field that holds the list
  * or map (see `FieldIds`). What users are shown has none of this (`FieldIds.strip`).
  *
  * Source: Iceberg table specification, "Schemas and Data Types" and "Appendix C: JSON serialization".
  */
object IcebergSchema {

  /** A `struct` in Iceberg's JSON, with ids in the metadata. Throws `NotSupportedYet` for types without a like. */
  def toSpark(schema: JsonNode): StructType = ???

  /** Iceberg's JSON of a schema that Spark asks for; its ids are placeholders, the catalog gives real ones. */
  def toIceberg(schema: StructType): JsonNode = ???
}
