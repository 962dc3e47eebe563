package lakewarden.spark

import org.sparkproject.connect.grpc.{Metadata, ServerCall, ServerCallHandler, ServerInterceptor}
import org.sparkproject.connect.grpc.ForwardingServerCallListener.SimpleForwardingServerCallListener
import org.sparkproject.connect.protobuf.Message

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.code.{CodeGrants, ConnectGuard, ConnectRefusal, TypedCall}

/** `spark.connect.grpc.interceptor.classes=lakewarden.spark.LakewardenConnectInterceptor`.
  *
  * Refuses code, paths and settings in requests of Spark Connect before Spark takes them: artifacts, functions,
  * settings and much else come without a plan, or do harm while Spark makes a plan of them. Answers errors with
  * condition and SQLSTATE.
  */
final class LakewardenConnectInterceptor extends ServerInterceptor {
  private val guard = new ConnectGuard

  override def interceptCall[Q, A](
      call: ServerCall[Q, A], headers: Metadata, next: ServerCallHandler[Q, A]): ServerCall.Listener[Q] = {
    val typed = new TypedCall(call)
    new SimpleForwardingServerCallListener[Q](next.startCall(typed, headers)) {
      private var refused = false

      override def onMessage(message: Q): Unit = if (!refused) refusal(message) match {
        case None =>
          typed.told(message)
          super.onMessage(message)
        case Some(refusal) =>
          refused = true
          val status = ConnectRefusal.status(refusal)
          call.close(status.getStatus, status.getTrailers)
      }

      override def onHalfClose(): Unit = if (!refused) super.onHalfClose()
    }
  }

  private def refusal(request: Any): Option[LakewardenException] =
    try {
      request match {
        case message: Message => guard.check(message)
        case _                => throw CodeGrants.refused("A request that is not of Spark Connect", "", null)
      }
      None
    } catch { case refusal: LakewardenException => Some(refusal) }
}
