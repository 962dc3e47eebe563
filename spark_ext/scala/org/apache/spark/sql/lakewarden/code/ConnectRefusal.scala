package org.apache.spark.sql.lakewarden.code

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.commons.lang3.StringUtils
import org.sparkproject.connect.google_protos.rpc.{Code, ErrorInfo, Status}
import org.sparkproject.connect.grpc.StatusRuntimeException
import org.sparkproject.connect.grpc.protobuf.StatusProto
import org.sparkproject.connect.protobuf.Any

import org.apache.spark.SparkThrowable
import org.apache.spark.sql.lakewarden.{LakewardenException, SqlStates}

/** An error as clients of Spark Connect read it: with class, condition, SQLSTATE and parameters, which Spark sends as
  * the metadata of an `ErrorInfo` (google/rpc/error_details.proto).
  */
object ConnectRefusal {

  /** Texts can hold what the client sent, and clients take headers of 8 KiB in all. */
  private val Longest = 1000

  /** @param refusal one with a condition */
  def status(refusal: Throwable with SparkThrowable): StatusRuntimeException =
    StatusProto.toStatusRuntimeException(
      Status.newBuilder.setCode(code(refusal).getNumber).setMessage(short(refusal.getMessage))
        .addDetails(Any.pack(info(refusal).build)).build)

  private def code(refusal: Throwable): Code = refusal match {
    case _: LakewardenException => Code.PERMISSION_DENIED
    case _                      => Code.INTERNAL
  }

  /** @param error one with a condition */
  def info(error: Throwable with SparkThrowable): ErrorInfo.Builder =
    ErrorInfo.newBuilder.setReason(error.getClass.getName).setDomain("org.apache.spark")
      .putMetadata("classes", json(classes(error.getClass).asJava))
      .putMetadata("errorClass", error.getCondition)
      .putMetadata("sqlState", Option(error.getSqlState).getOrElse(SqlStates.General))
      .putMetadata("messageParameters", json(error.getMessageParameters.asScala.view.mapValues(short).toMap.asJava))

  /** Clients choose their own class by these. */
  private def classes(kind: Class[_]): Seq[String] =
    Iterator.iterate[Class[_]](kind)(_.getSuperclass).takeWhile(_ != classOf[Object]).map(_.getName).toSeq

  /** As long as headers take it. */
  def short(text: String): String = StringUtils.abbreviate(text, Longest)
  private def json(value: AnyRef): String = new ObjectMapper().writeValueAsString(value)
}
