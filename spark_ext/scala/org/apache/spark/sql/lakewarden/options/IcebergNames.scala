package org.apache.spark.sql.lakewarden.options

import java.util.Locale

import org.apache.spark.sql.lakewarden.Resource

/** What an option or setting of Iceberg is here. */
sealed trait Meaning
object Meaning {
  case object Honoured extends Meaning

  /** The one value that is always so. */
  final case class Only(value: String) extends Meaning

  final case class Refused(hint: String) extends Meaning
}

/** The names of one kind: read options, write options or session settings.
  *
  * A name that ends with a dot stands for all names that begin with it.
  */
final class Names private[options] (meanings: Map[String, Meaning]) {
  private val prefixes = meanings.filter(_._1.endsWith("."))

  /** None: Iceberg has no such name. */
  def of(name: String): Option[Meaning] =
    meanings.get(name).orElse(prefixes.collectFirst { case (prefix, meaning) if name.startsWith(prefix) => meaning })
}

/** What each option and setting of Iceberg on Spark is here: `resources/lakewarden/iceberg-options.txt`. */
object IcebergNames {
  private lazy val all: Map[String, Map[String, Meaning]] = {
    val entries = Resource.lines("/lakewarden/iceberg-options.txt").map(_.split(" ", 4).toList).map {
      case List(kind, name, "honoured")      => (kind, name, Meaning.Honoured)
      case List(kind, name, "only", value)   => (kind, name, Meaning.Only(value))
      case List(kind, name, "refused", hint) => (kind, name, Meaning.Refused(hint))
      case other                             => throw new IllegalStateException(other.mkString(" "))
    }
    entries.groupMap(_._1)(each => each._2 -> each._3).map { case (kind, names) => kind -> names.toMap }
  }

  /** In small letters. */
  lazy val read: Names = new Names(lowered("read"))

  /** In small letters. */
  lazy val write: Names = new Names(lowered("write"))
  lazy val settings: Names = new Names(all("setting"))

  /** Whether a setting is Iceberg's. */
  def isSetting(name: String): Boolean = name.startsWith("spark.sql.iceberg.") || name.startsWith("spark.wap.")

  private def lowered(kind: String): Map[String, Meaning] =
    all(kind).map { case (name, meaning) => name.toLowerCase(Locale.ROOT) -> meaning }
}
