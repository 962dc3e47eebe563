package org.apache.spark.sql.lakewarden.code

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.commons.lang3.StringUtils
import org.sparkproject.connect.google_protos.rpc.{Code, ErrorInfo, Status}
import org.sparkproject.connect.grpc.StatusRuntimeException
import org.sparkproject.connect.grpc.protobuf.StatusProto
import org.sparkproject.connect.protobuf.Any

import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.lakewarden.LakewardenException

/** A refusal as clients of Spark Connect read it: with class, condition, SQLSTATE and parameters, which Spark sends as
  * the metadata of an `ErrorInfo` (google/rpc/error_details.proto).
  */
object ConnectRefusal {

  /** Texts can hold what the client sent, and clients take headers of 8 KiB in all. */
  private val Longest = 1000

  def status(refusal: LakewardenException): StatusRuntimeException = {
    val info = ErrorInfo.newBuilder.setReason(classOf[AnalysisException].getName).setDomain("org.apache.spark")
      .putMetadata("classes", json(java.util.List.of(classOf[AnalysisException].getName)))
      .putMetadata("errorClass", refusal.getCondition)
      .putMetadata("sqlState", refusal.getSqlState)
      .putMetadata("messageParameters", json(refusal.getMessageParameters.asScala.view.mapValues(short).toMap.asJava))
    StatusProto.toStatusRuntimeException(
      Status.newBuilder.setCode(Code.PERMISSION_DENIED_VALUE).setMessage(short(refusal.getMessage))
        .addDetails(Any.pack(info.build)).build)
  }

  private def short(text: String): String = StringUtils.abbreviate(text, Longest)
  private def json(value: AnyRef): String = new ObjectMapper().writeValueAsString(value)
}
