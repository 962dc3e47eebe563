package org.apache.spark.sql.lakewarden.options

import java.util.Locale

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** What a read or write is told by its options, the session's settings and the table's properties, in this order.
  *
  * Nothing is ignored: an option or setting of Iceberg that is not honoured is refused by name.
  *
  * @param kind
  *   `read` or `write`
  * @param properties
  *   the table's
  */
final class GivenOptions(
    kind: String, names: Names, options: CaseInsensitiveStringMap, properties: Map[String, String]) {
  private val conf = SQLConf.get

  /** Throws `NotSupportedYet` for what has no effect.
    *
    * @param unused
    *   options, in small letters, that have no effect on this read or write
    * @param isOther
    *   whether an option that is not Iceberg's means something
    */
  def check(unused: Set[String] = Set.empty, isOther: String => Boolean = _ => false): Unit = {
    options.asScala.toSeq.sorted.foreach { case (name, value) =>
      val refusal = if (unused(name)) Some(Meaning.Refused("Remove it from the statement.")) else names.of(name)
      refuse(s"The $kind option $name", s"$kind-option", value, refusal, isOther(name))
    }
    conf.getAllConfs.toSeq.filter(each => IcebergNames.isSetting(each._1)).sorted.foreach {
      case (name, value) => refuse(s"The setting $name of this session", "setting", value, IcebergNames.settings.of(name))
    }
  }

  /** Absent names are null, as options have them. */
  def text(option: String, setting: String = null, property: String = null): Option[String] =
    Option(option).flatMap(name => Option(options.get(name)))
      .orElse(Option(setting).flatMap(name => Option(conf.getConfString(name, null))))
      .orElse(Option(property).flatMap(properties.get))

  /** Throws `RequestInvalid` for what is no whole number above 0. */
  def number(option: String, setting: String = null, property: String = null): Option[Long] =
    text(option, setting, property).map { value =>
      value.trim.toLongOption.filter(_ > 0).getOrElse(throw invalid(option, value, "a whole number above 0"))
    }

  /** Throws `RequestInvalid` for another value, in any case. */
  def choice(choices: Seq[String], option: String, setting: String = null, property: String = null): Option[String] =
    text(option, setting, property).map { value =>
      val lower = value.toLowerCase(Locale.ROOT)
      if (choices.contains(lower)) lower else throw invalid(Option(option).getOrElse(setting), value, s"one of ${choices.mkString(", ")}")
    }

  def flag(option: String, setting: String = null, property: String = null): Option[Boolean] =
    choice(Seq("true", "false"), option, setting, property).map(_ == "true")

  /** Of the session, with names below a prefix. */
  def below(prefix: String): Map[String, String] =
    conf.getAllConfs.collect { case (name, value) if name.startsWith(prefix) => name.drop(prefix.length) -> value }

  def invalid(option: String, value: String, expected: String): LakewardenException = new LakewardenException(
    "RequestInvalid", s"'${value.take(80)}' is not a value of the $kind option $option.", Some(s"$kind-option"),
    Some(s"Use $expected."))

  private def refuse(
      what: String, rule: String, value: String, meaning: Option[Meaning], others: Boolean = false): Unit = meaning match {
    case Some(Meaning.Honoured)                                       =>
    case Some(Meaning.Only(always)) if value.equalsIgnoreCase(always) =>
    case None if others                                               =>
    case Some(Meaning.Only(always)) =>
      throw LakewardenException.notSupportedYet(s"$what is '${value.take(80)}'.", rule, s"Only $always is supported.")
    case Some(Meaning.Refused(hint)) => throw LakewardenException.notSupportedYet(s"$what is not supported.", rule, hint)
    case None => throw LakewardenException.notSupportedYet(
        s"$what is not supported.", rule, "Check the spelling, or remove it.")
  }
}
