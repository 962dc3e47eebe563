package org.apache.spark.sql.lakewarden.restrictions

import org.apache.spark.sql.types._

/** What a mask makes of the values of a column. NULL stays NULL.
  *
  * Source: Iceberg REST specification, actions of `ReadRestrictions`; Apache Hive, `GenericUDFMask` and its like, with
  * the arguments that Apache Ranger gives them.
  *
  * @param name
  *   in plans
  */
private[lakewarden] sealed abstract class MaskAction(val name: String) extends Serializable {

  /** Whether it is for values of this type. */
  def takes(kind: DataType): Boolean

  /** Whether it makes NULL of a value. */
  def makesNull: Boolean = false

  override def toString: String = name
}

private[lakewarden] object MaskAction {

  sealed abstract class OfTexts(name: String) extends MaskAction(name) {
    override def takes(kind: DataType): Boolean = kind == StringType
  }

  sealed abstract class OfMoments(name: String) extends MaskAction(name) {
    override def takes(kind: DataType): Boolean = kind match {
      case DateType | TimestampType | TimestampNTZType => true
      case _                                           => false
    }
  }

  sealed abstract class Hash(name: String) extends MaskAction(name) {
    override def takes(kind: DataType): Boolean = kind match {
      case StringType | IntegerType | LongType | BinaryType => true
      case _                                                => false
    }
  }

  sealed abstract class OfHive(name: String) extends MaskAction(name) {
    override def takes(kind: DataType): Boolean = kind match {
      case StringType | IntegerType | LongType | DateType => true
      case _                                              => false
    }
  }

  case object MaskAlphanum extends OfTexts("mask-alphanum")
  case object ShowFirst4 extends OfTexts("show-first-4")
  case object ShowLast4 extends OfTexts("show-last-4")
  case object TruncateToYear extends OfMoments("truncate-to-year")
  case object TruncateToMonth extends OfMoments("truncate-to-month")
  case object Sha256Global extends Hash("sha-256-global")
  case object Sha256QueryLocal extends Hash("sha-256-query-local")

  case object MaskToFixedValue extends MaskAction("mask-to-fixed-value") {
    override def takes(kind: DataType): Boolean = kind match {
      case _: StructType => false
      case _             => true
    }
  }

  case object ReplaceWithNull extends MaskAction("replace-with-null") {
    override def takes(kind: DataType): Boolean = true
    override def makesNull: Boolean = true
  }

  case object HiveMask extends OfHive("hive-mask")
  case object HiveShowFirst4 extends OfHive("hive-show-first-4")
  case object HiveShowLast4 extends OfHive("hive-show-last-4")
  case object HiveDateShowYear extends OfHive("hive-date-show-year")

  private val all: Map[String, MaskAction] = Seq(
    MaskAlphanum, MaskToFixedValue, ReplaceWithNull, ShowFirst4, ShowLast4, TruncateToYear, TruncateToMonth,
    Sha256Global, Sha256QueryLocal, HiveMask, HiveShowFirst4, HiveShowLast4, HiveDateShowYear)
    .map(each => each.name -> each).toMap

  def named(name: String): Option[MaskAction] = all.get(name)
}
