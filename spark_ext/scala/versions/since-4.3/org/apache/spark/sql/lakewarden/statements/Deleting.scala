package org.apache.spark.sql.lakewarden.statements

import scala.collection.mutable

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy, UnaryExecNode}

/** Leaves out rows that delete what others of the same task delete: as many rows with equal keys are replaced by as many
  * new ones, a join of all with all of them would not end.
  *
  * @param keys
  *   what the rows delete by
  * @param kind
  *   zero in rows that delete. The others stay
  */
final case class Deleting(keys: Seq[Attribute], kind: Attribute, child: LogicalPlan) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  override protected def withNewChildInternal(newChild: LogicalPlan): Deleting = copy(child = newChild)
}

object Deleting {
  object Strategy extends SparkStrategy {
    override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
      case Deleting(keys, kind, child) => Seq(DeletingExec(keys, kind, planLater(child)))
      case _                           => Nil
    }
  }
}

final case class DeletingExec(keys: Seq[Attribute], kind: Attribute, child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering

  override protected def doExecute(): RDD[InternalRow] = {
    val (wanted, known) = (keys, child.output)
    val at = known.indexWhere(_.exprId == kind.exprId)
    child.execute().mapPartitions { rows =>
      val (key, seen) = (UnsafeProjection.create(wanted, known), new SeenKeys)
      rows.filter(row => row.getLong(at) != 0 || seen.isNew(key(row)))
    }
  }

  override protected def withNewChildInternal(newChild: SparkPlan): DeletingExec = copy(child = newChild)
}

/** The keys of a task, up to a size. What does not fit is new each time. */
private final class SeenKeys {
  private val keys = mutable.HashSet.empty[UnsafeRow]
  private var room = 16 << 20

  def isNew(key: UnsafeRow): Boolean = !keys.contains(key) && {
    val size = key.getSizeInBytes + 64
    if (room >= size) {
      keys += key.copy()
      room -= size
    }
    true
  }
}
