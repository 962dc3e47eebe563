package org.apache.spark.sql.lakewarden.read

import java.math.BigDecimal
import java.sql.{Date, Timestamp}
import java.time.LocalDate
import java.util.concurrent.TimeUnit.DAYS

import org.apache.hadoop.hive.common.`type`.HiveDecimal
import org.apache.hadoop.hive.ql.io.sarg.PredicateLeaf.Type
import org.apache.hadoop.hive.ql.io.sarg.SearchArgument.{Builder, TruthValue}
import org.apache.hadoop.hive.serde2.io.HiveDecimalWritable
import org.apache.orc.TypeDescription.Category

/** What can be asked of one column of a file. None: not exactly.
  *
  * @param name
  *   as ORC's filters name it
  * @param literal
  *   a filter's value as ORC compares it
  */
private[read] class OrcColumn(name: String, kind: Type, literal: Any => Option[Object]) {
  import OrcColumn._

  def isNull: Said = _.isNull(name, kind)
  def isNotNull: Said = not(isNull)

  def equal(value: Any): Option[Said] = literal(value).map(each => _.equals(name, kind, each))

  def below(value: Any, orEqual: Boolean): Option[Said] = literal(value).map { each =>
    if (orEqual) _.lessThanEquals(name, kind, each) else _.lessThan(name, kind, each)
  }

  def above(value: Any, orEqual: Boolean): Option[Said] = below(value, !orEqual).map(not)

  /** @param values
    *   without NULL, which equals nothing
    */
  def oneOf(values: Seq[Any]): Option[Said] = {
    val known = values.flatMap(literal)
    if (values.isEmpty) Some(_.literal(TruthValue.NO))
    else Option.when(known.size == values.size)(_.in(name, kind, known: _*))
  }
}

/** A column whose values are equal or not. */
private final class OrcFlags(name: String) extends OrcColumn(name, Type.BOOLEAN, flag => Some(flag.asInstanceOf[Object])) {
  override def below(value: Any, orEqual: Boolean): Option[OrcColumn.Said] = None
}

/** Times: writers round their bounds, some take them in a time zone of their own, and ORC has those from before 1582
  * in another calendar. So a filter asks for more: for two days on both sides, and nothing about that age.
  *
  * @param micros
  *   of a filter's value; none: not known
  */
private final class OrcMoments(name: String, micros: Any => Option[Long]) extends OrcColumn(name, Type.TIMESTAMP, _ => None) {
  import OrcColumn._

  override def equal(value: Any): Option[Said] = oneOf(Seq(value))
  override def below(value: Any, orEqual: Boolean): Option[Said] = at(value).map(until)
  override def above(value: Any, orEqual: Boolean): Option[Said] = at(value).map(from)

  override def oneOf(values: Seq[Any]): Option[Said] = {
    val known = values.flatMap(at)
    Option.when(known.nonEmpty && known.size == values.size)(all(Seq(from(known.min), until(known.max))))
  }

  private def at(value: Any): Option[Long] = micros(value).map(Math.floorDiv(_, 1000L)).filter(_ >= Known)
  private def from(millis: Long): Said = not(_.lessThan(name, Type.TIMESTAMP, new Timestamp(millis - Margin)))
  private def until(millis: Long): Said = _.lessThanEquals(name, Type.TIMESTAMP, new Timestamp(millis + Margin))
}

private[read] object OrcColumn {

  /** A part of a filter, put into one that is being built. */
  type Said = Builder => Builder

  def all(said: Seq[Said]): Said = builder => said.foldLeft(builder.startAnd())((so, each) => each(so)).end()
  def not(said: Said): Said = builder => said(builder.startNot()).end()

  /** What can be asked of a column of a file; none: nothing. */
  def of(name: String, category: Category): Option[OrcColumn] = category match {
    case Category.BOOLEAN => Some(new OrcFlags(name))
    case Category.BYTE | Category.SHORT | Category.INT | Category.LONG =>
      Some(new OrcColumn(name, Type.LONG, value => Some(Long.box(value.asInstanceOf[Number].longValue))))
    case Category.DATE              => Some(new OrcColumn(name, Type.DATE, day))
    case Category.DECIMAL           => Some(new OrcColumn(name, Type.DECIMAL, decimal))
    case Category.TIMESTAMP_INSTANT => Some(new OrcMoments(name, Moments.micros))
    case Category.TIMESTAMP         => Some(new OrcMoments(name, Moments.localMicros))
    case _                          => None
  }

  /** The first day of the calendar of today; ORC counts those before it otherwise. */
  private val FirstDay = LocalDate.of(1582, 10, 15).toEpochDay
  private[read] val Margin = DAYS.toMillis(2)
  private[read] val Known = DAYS.toMillis(FirstDay) + Margin

  /** A day as ORC takes it apart again, in the time zone of the JVM, where some days never were. */
  private def day(value: Any): Option[Date] =
    for {
      days <- Moments.days(value) if days >= FirstDay
      day = LocalDate.ofEpochDay(days.toLong)
      found <- Some(Date.valueOf(day)) if found.toLocalDate == day
    } yield found

  private def decimal(value: Any): Option[HiveDecimalWritable] = value match {
    case number: BigDecimal => Option(HiveDecimal.create(number, false)).map(new HiveDecimalWritable(_))
    case _                  => None
  }
}
