package lakewarden.spark

import org.sparkproject.connect.grpc.{Metadata, ServerCall, ServerCallHandler, ServerInterceptor, StatusRuntimeException}
import org.sparkproject.connect.grpc.ForwardingServerCallListener.SimpleForwardingServerCallListener
import org.sparkproject.connect.protobuf.Message

import org.apache.spark.SparkThrowable
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
        case Some(status) =>
          refused = true
          call.close(status.getStatus, status.getTrailers)
      }

      override def onHalfClose(): Unit = if (!refused) super.onHalfClose()
    }
  }

  /** What refuses the request: the guard, or Spark, whose session it names. */
  private def refusal(request: Any): Option[StatusRuntimeException] =
    try {
      request match {
        case message: Message => guard.check(message)
        case _                => throw CodeGrants.refused("A request that is not of Spark Connect", "", null)
      }
      None
    } catch {
      case refusal: Throwable with SparkThrowable if refusal.getCondition != null => Some(ConnectRefusal.status(refusal))
    }
}
