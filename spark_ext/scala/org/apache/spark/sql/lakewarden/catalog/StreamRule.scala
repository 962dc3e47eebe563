package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.streaming.WriteToStream
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.write.StreamSink
import org.apache.spark.sql.streaming.OutputMode

/** Refuses a stream to a table before it starts, where Spark would see it in the first micro-batch. */
object StreamRule extends (LogicalPlan => Unit) {
  override def apply(plan: LogicalPlan): Unit = plan match {
    case stream: WriteToStream => stream.sink match {
        case table: GuardedTable => check(stream, table)
        case _                   =>
      }
    case _ =>
  }

  private def check(stream: WriteToStream, table: GuardedTable): Unit = {
    if (stream.outputMode == OutputMode.Update) throw LakewardenException.notSupportedYet(
      s"${table.name} cannot be written in update mode.", "stream", "Use append or complete mode.")
    StreamSink.requireColumns(table.handle.table, stream.inputQuery.schema)
  }

  /** Whether a stream that starts makes the table that it will write to. */
  def isCreating: Boolean =
    StackWalker.getInstance.walk[Boolean](_.anyMatch(_.getClassName.endsWith(".DataStreamWriter")))

  /** A stream that does not start would leave its table behind. */
  def creating(table: String): LakewardenException = LakewardenException.notSupportedYet(
    s"The table $table does not exist. A stream does not create its table.", "stream",
    "Create the table first, and start the stream again.")
}
