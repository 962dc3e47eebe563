package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.streaming.{StreamingRelationV2, WriteToStream}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.Table
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2Relation, StreamingDataSourceV2ScanRelation}
import org.apache.spark.sql.execution.streaming.sources.WriteToMicroBatchDataSource
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.rest.{CatalogClient, EngineKeys, TokenDigest}

/** Who asks about a table once it is in a plan.
  *
  * @param client
  *   asks with the token of the session that runs the plan
  * @param owner
  *   whose the catalog is that loaded the table
  * @param running
  *   whose the session is that runs the plan
  */
final class PlanUsers(val client: CatalogClient, val owner: () => TokenDigest, val running: () => TokenDigest)

/** For whose session a table was loaded.
  *
  * Plans can travel between sessions: a global temporary view holds the tables of the session that made it,
  * and with them what Spark has cached for it.
  *
  * @param token
  *   with which the table was loaded
  * @param now
  *   that of the session that runs the plan
  * @param principalNow
  *   asks the catalog whose that is; a token may have been renewed
  */
final class SessionUser(principal: String, token: TokenDigest, now: () => TokenDigest, principalNow: () => String) {

  /** Refuses a session of another user. */
  def require(table: String): Unit =
    if (now() != token && principalNow() != principal)
      throw new LakewardenException(
        "NotAuthorized", s"The plan of this query loaded $table for another user.", Some("other-user"),
        Some("Query the table by name, so that this session loads it."))
}

/** Refuses plans that hold tables of another user.
  *
  * @param engine
  *   the keys of the engine; sessions find them by this rule of theirs
  */
final class SessionUserRule(val engine: EngineKeys) extends (LogicalPlan => Unit) {
  override def apply(plan: LogicalPlan): Unit = plan.foreachWithSubqueries {
    case relation: DataSourceV2Relation            => require(relation.table)
    case source: StreamingRelationV2               => require(source.table)
    case sink: WriteToStream                       => require(sink.sink)
    case source: StreamingDataSourceV2ScanRelation => require(source.relation.table)
    case batch: WriteToMicroBatchDataSource        => batch.productIterator.foreach(requireTarget)
    case _                                         =>
  }

  /** What a micro-batch is written to. (It has another type in 4.1.) */
  private def requireTarget(part: Any): Unit = part match {
    case relation: DataSourceV2Relation => require(relation.table)
    case table: Table                   => require(table)
    case _                              =>
  }

  private def require(table: Table): Unit = table match {
    case loaded: UsersTable => loaded.user.require(loaded.name)
    case _                  =>
  }
}

object SessionUserRule {

  /** The rule of a session that runs with the extension. */
  def of(session: SparkSession): Option[SessionUserRule] =
    session.extensions.buildCheckRules(session).collectFirst { case rule: SessionUserRule => rule }
}
