package org.apache.spark.sql.lakewarden.catalog

import java.util.Locale

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.analysis.{RelationTimeTravel, UnresolvedRelation}
import org.apache.spark.sql.catalyst.expressions.Literal
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnresolvedDataSource}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.types.TimestampType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Iceberg's ways to read a table of a Lakewarden catalog, as Spark's own: `format("iceberg").load("lake.db.t")` is the
  * table of that name, and the options `snapshot-id`, `tag` and `as-of-timestamp` are time travel, so that the columns
  * are those of the snapshot.
  *
  * It changes nothing else: other names are left to the data source that is registered as `iceberg`.
  *
  * @param isOurs
  *   whether a table of this name is in a Lakewarden catalog
  */
final class IcebergReads(isOurs: Seq[String] => Boolean) extends Rule[LogicalPlan] {
  import IcebergReads._

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperatorsUp {
    case source: UnresolvedDataSource if source.format.toLowerCase(Locale.ROOT) == SourceName.Format =>
      SourceName.of(source.paths ++ source.options.get(SourceName.Path)).filter(isOurs).fold[LogicalPlan](source)(table(source, _))
    case relation: UnresolvedRelation if named(relation.options).nonEmpty && isOurs(relation.multipartIdentifier) =>
      travelled(relation)
    case travel @ RelationTimeTravel(relation: UnresolvedRelation, _, _)
        if named(relation.options).nonEmpty && isOurs(relation.multipartIdentifier) =>
      throw several(relation, named(relation.options))
  }

  private def table(source: UnresolvedDataSource, name: Seq[String]): LogicalPlan = {
    if (source.userSpecifiedSchema.nonEmpty) throw TableStates.refused(
      s"${name.mkString(".")} is read with a schema, but has its own.", "read-schema", "Remove the schema from the reader.")
    val options = source.options.originalMap.filterNot(_._1.equalsIgnoreCase(SourceName.Path))
    val relation = UnresolvedRelation(name, new CaseInsensitiveStringMap(options.asJava), source.isStreaming)
    if (named(relation.options).isEmpty) relation else travelled(relation)
  }

  /** Names a write's table as it is; streams have their own options. */
  private def travelled(relation: UnresolvedRelation): LogicalPlan =
    if (relation.isStreaming || relation.clearWritePrivileges != relation) relation
    else {
      val options = relation.options
      val found = (named(options) ++ Others.filter(options.containsKey)) match {
        case Seq(one) => one
        case many     => throw several(relation, many)
      }
      val (rest, value) = (without(options, found), options.get(found))
      val bare = relation.copy(options = rest)
      found match {
        case Tag      => RelationTimeTravel(bare, None, Some(TableStates.TagOption + value))
        case Snapshot => RelationTimeTravel(bare, None, Some(number(found, value).toString))
        case Time     => RelationTimeTravel(bare, Some(Literal(micros(found, value), TimestampType)), None)
      }
    }

  private def micros(option: String, value: String): Long =
    try Math.multiplyExact(number(option, value), 1000L)
    catch { case _: ArithmeticException => throw invalid(option, value) }

  private def number(option: String, value: String): Long =
    Option.when(TableStates.isNumber(value))(value).flatMap(_.toLongOption).getOrElse(throw invalid(option, value))

  private def invalid(option: String, value: String): LakewardenException = TableStates.refused(
    s"'${value.take(80)}' is not a value of the read option $option.", "read-option",
    if (option == Snapshot) "Use the id of a snapshot." else "Use milliseconds since 1970-01-01 UTC.")

  private def several(relation: UnresolvedRelation, options: Seq[String]): LakewardenException = TableStates.refused(
    s"The statement names more than one state of ${relation.multipartIdentifier.mkString(".")}: ${options.mkString(", ")}.",
    "time-travel", "Name one snapshot, tag, branch or time.")
}

private object IcebergReads {
  private val Snapshot = "snapshot-id"
  private val Tag = "tag"
  private val Time = "as-of-timestamp"
  private val Own = Seq(Snapshot, Tag, Time)

  /** What else names a state. */
  private val Others = Seq("branch", "versionasof", "timestampasof")

  private def named(options: CaseInsensitiveStringMap): Seq[String] = Own.filter(options.containsKey)

  private def without(options: CaseInsensitiveStringMap, name: String): CaseInsensitiveStringMap =
    new CaseInsensitiveStringMap(options.asCaseSensitiveMap.asScala.filterNot(_._1.equalsIgnoreCase(name)).asJava)
}
