package org.apache.spark.sql.lakewarden.catalog

import java.util

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.connector.catalog.{Column, SupportsRead, TableCapability}
import org.apache.spark.sql.connector.catalog.TableCapability.BATCH_READ
import org.apache.spark.sql.connector.read.{Scan, ScanBuilder, SupportsPushDownRequiredColumns}
import org.apache.spark.sql.execution.LeafExecNode
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A definer view, as a statement of its reader sees it: columns and rows.
  *
  * Two are never equal: nothing that is kept of one is used for another.
  */
final class DefinerViewTable(query: DefinerQuery, val user: SessionUser) extends UsersTable with SupportsRead {
  override def name: String = query.name
  override def columns: Array[Column] = query.schema.fields.map(ShownTable.column)
  override def capabilities: util.Set[TableCapability] = util.EnumSet.of(BATCH_READ)
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = new DefinerViewScanBuilder(query)
  override def toString: String = name
}

/** Takes the columns that are read. It takes nothing else of the reader's statement: a filter, an aggregate or a limit
  * would be applied to rows that the view leaves out, and tell of them by its errors, or by how long it takes.
  */
final class DefinerViewScanBuilder(query: DefinerQuery) extends ScanBuilder with SupportsPushDownRequiredColumns {
  private var wanted = query.schema

  /** Whole columns, also where a part of one is read. */
  override def pruneColumns(required: StructType): Unit =
    wanted = StructType(query.schema.filter(each => required.fieldNames.contains(each.name)))

  override def build(): Scan = new DefinerViewScan(query.name, wanted, query.of(wanted.fieldNames.toSeq))
}

/** Without statistics, which would tell of the rows that the view leaves out. */
final class DefinerViewScan(name: String, override val readSchema: StructType, rows: DefinerRows) extends Scan {
  def rdd(reader: SQLConf): RDD[InternalRow] = rows.rdd(reader)
  override def description: String = s"$name [definer view]"
  override def toString: String = description
}

/** Runs the query of a view. It has no child that Spark could change, or show. */
final case class DefinerViewExec(output: Seq[Attribute], @transient scan: DefinerViewScan) extends LeafExecNode {
  override def nodeName: String = "DefinerView"
  override protected def doExecute(): RDD[InternalRow] = scan.rdd(conf)
}
