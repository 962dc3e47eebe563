package org.apache.spark.sql.lakewarden.code

import org.sparkproject.connect.grpc.{Metadata, ServerCall, Status}
import org.sparkproject.connect.grpc.ForwardingServerCall.SimpleForwardingServerCall
import org.sparkproject.connect.grpc.protobuf.StatusProto
import org.sparkproject.connect.protobuf.Message

import org.apache.spark.sql.connect.lakewarden.TypedStatus

/** A request of Spark Connect, whose error is answered with condition and SQLSTATE. */
final class TypedCall[Q, A](call: ServerCall[Q, A]) extends SimpleForwardingServerCall[Q, A](call) {
  @volatile private var asking = Option.empty[Asking]

  /** Tells whose request it is. */
  def told(request: Any): Unit = request match {
    case message: Message => asking = Some(Asking.of(message))
    case _                =>
  }

  override def close(status: Status, trailers: Metadata): Unit = {
    val typed = for {
      who <- asking if !status.isOk
      told <- Option(StatusProto.fromStatusAndTrailers(status, trailers))
      found <- TypedStatus.of(told, who.user, who.session)
    } yield found
    typed.map(StatusProto.toStatusRuntimeException(_)) match {
      case Some(found) => super.close(found.getStatus, found.getTrailers)
      case None        => super.close(status, trailers)
    }
  }
}

/** The user and session that a request of Spark Connect names.
  *
  * @param user
  *   as the client says; nobody verified it
  */
final case class Asking(user: String, session: String)

object Asking {
  def of(request: Message): Asking = {
    val context = request.getField(field(request, "user_context")).asInstanceOf[Message]
    Asking(text(context, "user_id"), text(request, "session_id"))
  }

  private def text(message: Message, name: String): String = message.getField(field(message, name)).toString
  private def field(message: Message, name: String) = message.getDescriptorForType.findFieldByName(name)
}
