package org.apache.spark.sql.lakewarden.read

import java.time.Duration
import java.util.UUID
import java.util.concurrent.{Callable, ExecutionException}

import com.google.common.cache.{Cache, CacheBuilder, Weigher}
import com.google.common.util.concurrent.UncheckedExecutionException

import org.apache.spark.SparkEnv
import org.apache.spark.sql.lakewarden.LakewardenException

/** What was read of a delete file.
  *
  * @param bytes
  *   in memory, about
  */
private[read] final case class ReadDeletes[T](content: T, bytes: Long)

/** The delete files that this executor has read, by plan: what was read by the keys of one plan serves no other.
  *
  * They are kept in a bounded part of the memory, and for a while after their last use.
  */
private[read] object DeleteCache {
  private final case class Key(plan: UUID, path: String)

  /** A setting of the launch: bytes of what one task may hold for one data file, and of what is kept. */
  private val Setting = "spark.lakewarden.deletes.memory"
  private val Minutes = 5L

  /** Bytes of what one task may hold for one data file. A delete file that takes half as much is not kept. */
  def maxBytes: Long = SparkEnv.get.conf.getSizeAsBytes(Setting, s"${Runtime.getRuntime.maxMemory / 8}b")

  private val held: Cache[Key, ReadDeletes[_]] = CacheBuilder.newBuilder
    .concurrencyLevel(1)
    .maximumWeight(maxBytes)
    .weigher[Key, ReadDeletes[_]](((_, read) => math.min(read.bytes, Int.MaxValue).toInt): Weigher[Key, ReadDeletes[_]])
    .expireAfterAccess(Duration.ofMinutes(Minutes))
    .build[Key, ReadDeletes[_]]()

  /** What was read of a file for this plan; tasks that want it at the same time read it once.
    *
    * @param read
    *   reads it; what it throws is thrown to every task that waits
    */
  def of[T](plan: UUID, path: String)(read: => ReadDeletes[T]): ReadDeletes[T] = {
    val load: Callable[ReadDeletes[_]] = () => read
    try held.get(Key(plan, path), load).asInstanceOf[ReadDeletes[T]]
    catch {
      case failed @ (_: ExecutionException | _: UncheckedExecutionException) => failed.getCause match {
          case known: LakewardenException => throw known
          // The task that read it was stopped.
          case _ => read
        }
    }
  }
}
