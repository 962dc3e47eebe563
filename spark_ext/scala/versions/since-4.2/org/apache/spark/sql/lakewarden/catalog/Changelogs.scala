package org.apache.spark.sql.lakewarden.catalog

import java.util.Locale

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.expressions.Alias
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.connector.catalog.{Changelog, ChangelogContext, ChangelogRange, Column, Identifier, TableCatalog}
import org.apache.spark.sql.connector.catalog.ChangelogContext.DeduplicationMode
import org.apache.spark.sql.connector.expressions.NamedReference
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.execution.datasources.v2.{ChangelogTable, DataSourceV2Relation}
import org.apache.spark.sql.lakewarden.options.ReadOptions
import org.apache.spark.sql.lakewarden.read.{AtSnapshot, AtTime, ChangeBound, ChangeBounds, ChangeColumns}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Reads `SELECT … FROM t CHANGES …`. */
trait Changelogs extends TableCatalog {

  /** The table whose changes are read, as it is now. */
  protected def changing(ident: Identifier): GuardedTable

  override def loadChangelog(
      ident: Identifier, context: ChangelogContext, options: CaseInsensitiveStringMap): Changelog =
    new GuardedChangelog(changing(ident), context, options)
}

/** The changes of a table in a range of versions or times. Spark is told that nothing is left for it to do: it could find
  * copied rows only by ids of rows.
  */
private final class GuardedChangelog(base: GuardedTable, context: ChangelogContext, options: CaseInsensitiveStringMap)
    extends Changelog {
  private val named = base.handle.on(options)
  private val range = bounds(context.range).of(named.table)

  /** The changes as they are read. */
  val table: ChangesTable = ChangesTable.of(base, ChangeColumns.Spark, Some(range))

  /** What is shown of them; none: all. */
  val form: Option[ChangeForm] = context.deduplicationMode match {
    case DeduplicationMode.NONE if context.computeUpdates => throw Procedures.refused(
        s"Updates of ${base.name} cannot be told among rows that were only copied.", "changes",
        "Use deduplicationMode dropCarryovers or netChanges, or leave computeUpdates out.")
    case DeduplicationMode.NONE => None
    case mode =>
      val identifiers = Option.when(context.computeUpdates)(ChangelogViews.identifiers(named.table))
      Some(ChangeForm(mode == DeduplicationMode.NET_CHANGES, identifiers))
  }

  override def name: String = table.name
  override def columns: Array[Column] = table.columns
  override def containsCarryoverRows: Boolean = false
  override def containsIntermediateChanges: Boolean = false
  override def representsUpdateAsDeleteAndInsert: Boolean = false
  override def rowId(): Array[NamedReference] = Array.empty
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    table.newScanBuilder(scanOptions(options))

  /** What is left for a scan: Spark has used the others. Throws `RequestInvalid` for a second range. */
  def scanOptions(options: CaseInsensitiveStringMap): CaseInsensitiveStringMap = {
    val own = options.asCaseSensitiveMap.asScala.filterNot(each => OfSpark(each._1.toLowerCase(Locale.ROOT)))
    val left = new CaseInsensitiveStringMap(own.asJava)
    val format = named.table.writeSettings.path("format").asText
    ReadOptions.of(left, named.table.properties, format, changes = true).snapshots.requireStatedRange()
    left
  }

  private val OfSpark = Set(
    "startingversion", "endingversion", "startingtimestamp", "endingtimestamp", "startingboundinclusive",
    "endingboundinclusive", "deduplicationmode", "computeupdates")

  private def bounds(range: ChangelogRange): ChangeBounds = range match {
    case versions: ChangelogRange.VersionRange =>
      val end = versions.endingVersion
      ChangeBounds(
        Some(version(versions.startingVersion, versions.startingBoundInclusive)),
        Option.when(end.isPresent)(version(end.get, versions.endingBoundInclusive)))
    case times: ChangelogRange.TimestampRange =>
      val end = times.endingTimestamp
      ChangeBounds(
        Some(AtTime(times.startingTimestamp, times.startingBoundInclusive)),
        Option.when(end.isPresent)(AtTime(end.get, times.endingBoundInclusive)))
    case _ => ChangeBounds()
  }

  private def version(text: String, inclusive: Boolean): ChangeBound = {
    val states = new TableStates(named.table.fullName, named.table.metadata, Wap(None, None))
    val id = states.version(text) match {
      case AsOf(id, _)    => Some(id)
      case branch: Branch => branch.head
    }
    AtSnapshot(id.getOrElse(throw TableStates.refused(
      s"${base.name} has no snapshots.", "snapshot", "Insert rows first.")), inclusive)
  }
}

/** Removes copied rows where a query reads changes, and finds updates. */
object ChangelogRule extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperatorsUp {
    case relation: DataSourceV2Relation => relation.table match {
        case ChangelogTable(ours: GuardedChangelog, _, _) => shown(relation, ours)
        case _                                           => relation
      }
  }

  /** What is above the relation has its attributes, so what is below gets others. */
  private def shown(relation: DataSourceV2Relation, changes: GuardedChangelog): LogicalPlan = {
    val raw = relation.copy(
      table = changes.table, output = relation.output.map(_.newInstance()), identifier = None,
      options = changes.scanOptions(relation.options))
    val rows = changes.form.fold[LogicalPlan](raw)(new ChangeRows(changes.name, changes.table.shown, _).of(raw))
    val named = relation.output.zip(rows.output).map { case (wanted, found) =>
      Alias(found, wanted.name)(wanted.exprId, wanted.qualifier)
    }
    Project(named, rows)
  }
}
