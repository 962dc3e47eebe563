package org.apache.spark.sql.connect.lakewarden

import scala.jdk.CollectionConverters._

import org.sparkproject.connect.google_protos.rpc.{ErrorInfo, Status}
import org.sparkproject.connect.protobuf.Any
import org.sparkproject.guava.cache.Cache

import org.apache.spark.SparkThrowable
import org.apache.spark.sql.connect.service.{SessionHolder, SessionKey, SparkConnectService}
import org.apache.spark.sql.lakewarden.SqlStates
import org.apache.spark.sql.lakewarden.code.ConnectRefusal

/** The error of a request of Spark Connect, with condition and SQLSTATE.
  *
  * Spark answers the outermost exception. What waits for a thread of its own, such as a scalar subquery, wraps the
  * reason in one without a condition (`SparkThreadUtils.awaitResult`). Spark keeps the exception for a client that
  * fetches its details. The first of its causes that has a condition takes its place, there and in the answer.
  */
object TypedStatus {
  private val MostCauses = 20
  private val Id = "errorId"
  private val Condition = "errorClass"
  private val State = "sqlState"

  private type Typed = Throwable with SparkThrowable

  /** The same error with the condition or SQLSTATE that it lacks; None if it lacks nothing.
    *
    * @param user
    *   as the request names them, and the session
    */
  def of(status: Status, user: String, session: String): Option[Status] =
    status.getDetailsList.asScala.find(_.is(classOf[ErrorInfo])).map(_.unpack(classOf[ErrorInfo])).flatMap { info =>
      if (!info.containsMetadata(Condition))
        SparkConnectService.sessionManager.getIsolatedSessionIfPresent(SessionKey(user, session))
          .flatMap(ofCause(status, info.getMetadataOrDefault(Id, ""), _))
          .orElse(Some(general(status, info.toBuilder.putMetadata(Condition, SqlStates.Legacy))))
      else if (info.containsMetadata(State)) None
      else Some(general(status, info.toBuilder))
    }

  private def general(status: Status, info: ErrorInfo.Builder): Status =
    answered(status, status.getMessage, info.putMetadata(State, SqlStates.General))

  private def ofCause(status: Status, id: String, holder: SessionHolder): Option[Status] = {
    val kept = errors(holder)
    Option(kept.getIfPresent(id)).flatMap(causes(_).collectFirst { case WithCondition(reason) => reason }).map {
      reason =>
        kept.put(id, reason)
        answered(status, ConnectRefusal.short(reason.getMessage), ConnectRefusal.info(reason).putMetadata(Id, id))
    }
  }

  private def answered(status: Status, message: String, info: ErrorInfo.Builder): Status = {
    val others = status.getDetailsList.asScala.filterNot(_.is(classOf[ErrorInfo]))
    status.toBuilder.setMessage(message).clearDetails.addDetails(Any.pack(info.build)).addAllDetails(others.asJava).build
  }

  private object WithCondition {
    def unapply(failure: Throwable): Option[Typed] = failure match {
      case typed: SparkThrowable if typed.getCondition != null => Some(failure.asInstanceOf[Typed])
      case _                                                   => None
    }
  }

  private def causes(failure: Throwable): Iterator[Throwable] =
    Iterator.iterate(failure)(_.getCause).takeWhile(_ != null).take(MostCauses)

  /** Spark's jar has it under another name than its Scala signature says, because Guava was moved in it. */
  private def errors(holder: SessionHolder): Cache[String, Throwable] =
    classOf[SessionHolder].getMethod("errorIdToError").invoke(holder).asInstanceOf[Cache[String, Throwable]]
}
