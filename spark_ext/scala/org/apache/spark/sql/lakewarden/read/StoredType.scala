package org.apache.spark.sql.lakewarden.read

import org.apache.parquet.schema.LogicalTypeAnnotation._
import org.apache.parquet.schema.LogicalTypeAnnotation.TimeUnit.MICROS
import org.apache.parquet.schema.PrimitiveType
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName._

import org.apache.spark.sql.types._

/** Whether a file says of a column what Iceberg's writers say of it, or what it may have been promoted from.
  *
  * Spark reads more, by converting it: other units of time, other scales. The types of a file are under its footer's
  * key; who has that, and not the key of a column, would give its values another meaning. Where the digest of the footer
  * is known (`FooterStream`), nobody can. Files that were written before there was one are checked against this: it does
  * not see everything (that a column could not be NULL, or is a shorter number), but what it sees was a column of
  * another kind.
  *
  * Source: Iceberg table specification, "Appendix A: Format-specific Requirements", Parquet; "Schema Evolution".
  */
private[read] object StoredType {
  def fits(wanted: DataType, leaf: PrimitiveType): Boolean = {
    val said = leaf.getLogicalTypeAnnotation
    (wanted, leaf.getPrimitiveTypeName) match {
      case (BooleanType, BOOLEAN) | (FloatType, FLOAT) | (DoubleType, FLOAT | DOUBLE) => said == null
      case (IntegerType | LongType, INT32) => said == null || said == intType(32, true)
      case (LongType, INT64)               => said == null || said == intType(64, true)
      case (DateType, INT32)               => said == dateType
      case (TimestampType, INT64)          => said == timestampType(true, MICROS)
      case (TimestampNTZType, INT64)       => said == timestampType(false, MICROS)
      case (_: StringType, BINARY)         => said == stringType
      case (BinaryType, BINARY | FIXED_LEN_BYTE_ARRAY) => said == null
      case (decimal: DecimalType, _) => said match {
          case found: DecimalLogicalTypeAnnotation =>
            found.getScale == decimal.scale && found.getPrecision <= decimal.precision
          case _ => false
        }
      case _ => false
    }
  }
}
