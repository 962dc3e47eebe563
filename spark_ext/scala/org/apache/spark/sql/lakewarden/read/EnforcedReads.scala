package org.apache.spark.sql.lakewarden.read

import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.restrictions._
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.StructType

/** What a user sees of the rows and columns of a scan, for the executors.
  *
  * @param restrictions
  *   the row filter and the masks
  * @param filtered
  *   the columns that the row filter reads, with ids
  * @param masked
  *   ids of the top-level columns that are shown through masks, whether files or the reader make them
  * @param unread
  *   ids of those that are read as NULL, whatever the files have
  * @param salt
  *   of hashes; none: there are none
  * @param lengths
  *   by id how many bytes each value of the type `fixed` has
  */
private[read] final case class EnforcedReads(
    restrictions: ReadRestrictions, filtered: StructType, masked: Set[Int], unread: Set[Int], salt: Option[QuerySalt],
    lengths: Map[Int, Int]) {

  /** Whether every row is read, and columns as the files have them. */
  def isEmpty: Boolean = restrictions.isEmpty

  /** Which rows are shown, new for each file; none: all.
    *
    * @param schema
    *   of what is read, with ids
    */
  def test(schema: StructType): Option[RowTest] = restrictions.filter.map(RowTest.of(_, schema))

  /** How columns are shown, on a task's thread; none: as they are. */
  def masks: Option[Masks] =
    Option.unless(isEmpty)(new Masks(restrictions.masks, salt.fold(Array.emptyByteArray)(_.ofTask), lengths))

  /** What parts of a file without a row for the user are left out by.
    *
    * @param schema
    *   of what is read, with ids
    */
  def skippingBy(schema: StructType): Seq[Filter] = restrictions.filter.flatMap(new SkippingFilters(schema).of).toSeq
}

private[read] object EnforcedReads {

  /** Those of a plan.
    *
    * @param wanted
    *   the columns, with ids
    */
  def of(plan: Plan, wanted: StructType): EnforcedReads = {
    val restrictions = plan.restrictions
    val filtered = RowKeys.only(plan.schema, restrictions.filtered)
    val salt = Option.when(restrictions.isSalted)(QuerySalt.ofApplication(SQLConf.get))
    EnforcedReads(restrictions, filtered, plan.masked, plan.stored ++ restrictions.unread(wanted), salt, plan.fixedLengths)
  }
}
