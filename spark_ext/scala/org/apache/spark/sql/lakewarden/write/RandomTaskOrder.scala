package org.apache.spark.sql.lakewarden.write

import java.security.SecureRandom

import scala.util.Random

import org.apache.spark.rdd.{PartitionCoalescer, PartitionGroup, RDD}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.connector.distributions.OrderedDistribution
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.datasources.v2.V2ExistingTableWriteExec

/** The tasks of a write that sorts its rows into ranges begin in random order.
  *
  * Spark begins tasks in the order of their ranges. So the times of files would show the order of values that a table is
  * sorted by, encrypted ones too.
  */
object RandomTaskOrder extends ColumnarRule {
  override def postColumnarTransitions: Rule[SparkPlan] = AroundRows

  private object AroundRows extends Rule[SparkPlan] {
    override def apply(plan: SparkPlan): SparkPlan = plan match {
      case write: V2ExistingTableWriteExec if hasRanges(write) && !write.query.isInstanceOf[RandomTasks] =>
        write.withNewChildren(Seq(RandomTasks(write.query)))
      case other => other
    }

    private def hasRanges(write: V2ExistingTableWriteExec): Boolean = write.write match {
      case own: GuardedWrite => own.requiredDistribution.isInstanceOf[OrderedDistribution]
      case _                 => false
    }
  }
}

/** The rows of a plan, whose partitions are those of the plan in random order. */
private[write] final case class RandomTasks(child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output

  override protected def doExecute(): RDD[InternalRow] = {
    val rows = child.execute()
    val tasks = rows.getNumPartitions
    if (tasks < 2) rows else rows.coalesce(tasks, shuffle = false, Some(RandomTasks.Order))
  }

  override protected def withNewChildInternal(newChild: SparkPlan): RandomTasks = copy(child = newChild)
}

private object RandomTasks {

  /** Spark asks once, in the driver. */
  private object Order extends PartitionCoalescer with Serializable {
    override def coalesce(maxPartitions: Int, parent: RDD[_]): Array[PartitionGroup] =
      new Random(new SecureRandom).shuffle(parent.partitions.toSeq).map { partition =>
        val group = new PartitionGroup
        group.partitions += partition
        group
      }.toArray
  }
}
