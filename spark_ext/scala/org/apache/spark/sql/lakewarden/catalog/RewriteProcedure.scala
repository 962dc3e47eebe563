package org.apache.spark.sql.lakewarden.catalog

import scala.annotation.tailrec
import scala.collection.immutable.ListMap
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.SparkThrowable
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.plans.logical.{AppendData, LogicalPlan, Repartition}
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Identifier}
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.read.AllowedPaths
import org.apache.spark.sql.lakewarden.rest.{Answers, CatalogClient, CatalogPaths}
import org.apache.spark.sql.lakewarden.write.{Arrangement, GroupTarget}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** `CALL <catalog>.system.rewrite_data_files(table => '…')`: writes files again that are too small or too large, that have
  * many deleted rows, or that are not encrypted as the table's properties say.
  *
  * Which files these are, and in what groups, the catalog says. Each group is read by a plan of its own, written
  * like any rows, and committed by itself, on top of what others commit meanwhile. A group that fails is passed
  * over and counted; where one of its files is the reason, the group is tried again without that file. Where it is
  * not said which one, the group is halved until it is found.
  */
private final class RewriteProcedure(
    catalog: CatalogPlugin, client: CatalogClient, tables: => Tables, sorting: SortArguments)
    extends TableProcedure(catalog.name) {
  import RewriteProcedure._

  override def name: String = "rewrite_data_files"
  override def description: String = "Rewrite small files into larger ones, and files whose encryption differs from the table's properties."

  override def parameters: Array[ProcedureParameter] = super.parameters ++ Array(
    parameter("strategy", StringType, "NULL", "binpack (the default) or sort."),
    parameter("sort_order", StringType, "NULL", "What to sort by: fields, or zorder(a, b)."),
    parameter("options", Argument.Texts, "NULL", "Options of the rewrite."),
    parameter("where", StringType, "NULL", "A condition; only files that can have matching rows are rewritten."),
    parameter("branch", StringType, "NULL", "The branch; by default main, and all branches for old encryption."),
    parameter("max_groups", IntegerType, "NULL", "Maximum number of file groups to rewrite; 0 only counts them."),
    parameter("forbid_old", BooleanType, "false", "Refuse files of earlier encryption epochs, if none is left."))

  override protected def answer(table: Identifier, arguments: InternalRow): AnsweredRows = {
    def text(at: Int): Option[String] = Option.when(!arguments.isNullAt(at))(arguments.getUTF8String(at).toString)
    val request = JsonNodeFactory.instance.objectNode
    val arrangement = sorting.of(text(1), text(2), tables.load(table))
    sorting.put(request, arrangement)
    if (!arguments.isNullAt(3)) {
      val options = request.putObject("options")
      Argument.texts(arguments, 3).foreach { case (name, value) => options.put(name, value) }
    }
    text(4).foreach(where =>
      request.set[JsonNode]("filter", new ProcedureFilter(catalog, tables.load(table).handle).parse(where)))
    text(5).foreach(request.put("branch", _))
    val most = if (arguments.isNullAt(6)) Int.MaxValue else arguments.getInt(6)
    val begun = ask(table, request, math.min(most, 0))
    request.set[JsonNode]("sequence-number", Answers.field(begun, "sequence-number"))
    val done = rewritten(table, request, arrangement, Done(), most)
    val removed = if (most > 0 && Answers.field(begun, "dangling").asBoolean) removeDangling(table, text(5)) else 0
    val forbidden = !arguments.isNullAt(7) && arguments.getBoolean(7) && forbid(table)
    new AnsweredRows(Schema, Array(done.row(ask(table, request, 0), removed, forbidden)))
  }

  /** Group by group, until none is left, or a pass over them neither rewrote one nor found a file to do without. */
  @tailrec
  private def rewritten(
      table: Identifier, request: ObjectNode, arrangement: Arrangement, done: Done, most: Int): Done = {
    val groups = Answers.field(ask(table, done.without(request), math.min(most, AtOnce)), "groups").elements.asScala
      .map(FileGroup.of).toSeq
    val pass = groups.foldLeft(done.copy(failed = Nil, failedFiles = 0))(searched(table, arrangement))
    if (pass.groups == done.groups && pass.unread.size == done.unread.size) pass.orRefusal
    else rewritten(table, request, arrangement, pass, math.max(0, most - (pass.groups - done.groups)))
  }

  /** A group is rewritten; or, if it fails and it is not said for which file, its halves one after the other. */
  private def searched(table: Identifier, arrangement: Arrangement)(sum: Done, group: FileGroup): Done =
    attempt(table, group, arrangement) match {
      case Left(why) if why.file.isEmpty && mayBeAFiles(why) && sum.failing < mostFailing =>
        group.paths match {
          case Seq(path) => sum.and(group, Left(ofFile(path, why)))
          case _         => group.halves.foldLeft(sum.failedOnce)(searched(table, arrangement))
        }
      case outcome => sum.and(group, outcome)
    }

  /** Cancelling a group's job cancels the whole rewrite. */
  private def attempt(
      table: Identifier, group: FileGroup, arrangement: Arrangement): Either[LakewardenException, Int] =
    try Right(rewrite(table, group, arrangement))
    catch { case NonFatal(problem) => if (causes(problem).exists(isCancelled)) throw problem else Left(refusal(problem)) }

  /** How many files came in place of the group's. */
  private def rewrite(table: Identifier, group: FileGroup, arrangement: Arrangement): Int = {
    val handle = tables.load(table).handle
    val target = new GroupTarget(handle, group)
    val files = new GroupTable(handle, group, target, arrangement)
    val write = AppendData.byPosition(relation(files), packed(relation(files), files))
    Dataset.ofRows(SparkSession.active, write)
    target.added
  }

  /** A table of the catalog, as the check of plans in a shared engine wants it. It has no name there: Spark would
    * load the whole table by it.
    */
  private def relation(files: GroupTable): DataSourceV2Relation =
    DataSourceV2Relation.create(files, Some(catalog), None)

  /** As many tasks as files are to come; where rows are brought together by partition, Spark decides that. */
  private def packed(rows: LogicalPlan, files: GroupTable): LogicalPlan =
    if (files.partitioning.nonEmpty) rows else Repartition(files.group.outputs, shuffle = false, rows)

  private def ask(table: Identifier, request: ObjectNode, groups: Int): JsonNode =
    post(table, Seq("rewrites"), request.deepCopy.put("max-groups", groups))

  /** Removes delete files that apply to no file any more; how many. */
  private def removeDangling(table: Identifier, branch: Option[String]): Int = {
    val request = JsonNodeFactory.instance.objectNode
    branch.foreach(request.put("branch", _))
    Answers.field(post(table, Seq("rewrites", "dangling-deletes"), request), "removed-delete-files-count").intValue
  }

  private def forbid(table: Identifier): Boolean =
    Answers.field(post(table, Seq("regimes", "forbid-old"), JsonNodeFactory.instance.objectNode), "old-forbidden").asBoolean

  private def post(table: Identifier, operation: Seq[String], body: JsonNode): JsonNode = {
    val path = CatalogPaths.engineTable(table.namespace.toSeq, table.name, operation.head) ++ operation.tail
    Refusals.ofTable(table)(client.post(path, Some(body)))
  }
}

private object RewriteProcedure {

  /** Groups that are asked for at a time. */
  private val AtOnce = 100
  private val MostCauses = 20

  /** Files that a call does without at the most; and problems that it tells. */
  private val (mostUnread, mostTold) = (100, 10)

  /** Attempts that fail one after the other until it is no file's fault any more. To find one file among the most that
    * a group has takes 14.
    */
  private val mostFailing = 30

  /** What is said of a group as a whole, though one of its files may be the reason. */
  private val FilesKinds = Set(
    "RewriteFailed", "StorageUnavailable", "DataFileDamaged", "DataFileMissing", "DecryptionRefused", "KeyNotUsable",
    "LocationNotAllowed", "LocationInvalid", "NotSupportedYet")

  private val Schema = StructType(Seq(
    StructField("rewritten_data_files_count", IntegerType, nullable = false),
    StructField("added_data_files_count", IntegerType, nullable = false),
    StructField("rewritten_bytes_count", LongType, nullable = false),
    StructField("failed_data_files_count", IntegerType, nullable = false),
    StructField("removed_delete_files_count", IntegerType, nullable = false),
    StructField("failed_groups", LongType, nullable = false),
    StructField("left_files", LongType, nullable = false),
    StructField("left_bytes", LongType, nullable = false),
    StructField("old_forbidden", BooleanType, nullable = false),
    StructField("problem", StringType, nullable = true)))

  /** What the catalog or the guard refused, below what Spark says of it; else what failed in Spark. */
  private def refusal(problem: Throwable): LakewardenException =
    causes(problem).collectFirst { case refused: LakewardenException => refused }.getOrElse(
      new LakewardenException(
        "RewriteFailed", s"Files could not be rewritten: ${problem.getMessage}", Some("rewrite"),
        Some("See Spark's log. Call the procedure again to continue with the remaining files."), problem))

  private def mayBeAFiles(why: LakewardenException): Boolean =
    FilesKinds.contains(why.kind) || isCount(why)

  /** What the catalog says of a commit with more or fewer rows than go: of one file, that its manifest lies. */
  private def isCount(why: LakewardenException): Boolean = why.rule.contains("replaced-rows")

  /** The same, which is known by now to be said of one file. */
  private def ofFile(path: String, why: LakewardenException): LakewardenException = {
    val (said, shown) = (why.getMessage.stripPrefix(s"${why.kind}: "), AllowedPaths.shown(path))
    if (isCount(why)) new LakewardenException(
      "DataFileDamaged", s"The number of rows in the file differs from its manifest. [file=$shown]",
        Some("record-count"),
      Some("Write the file again with its engine, or copy the rows into another table."), why, Some(path))
    else new LakewardenException(
      why.kind, if (said.contains(shown)) said else s"$said [file=$shown]", cause = why, file = Some(path))
  }

  private def isCancelled(problem: Throwable): Boolean = problem match {
    case spark: SparkThrowable => Option(spark.getCondition).exists(_.startsWith("SPARK_JOB_CANCELLED"))
    case _                     => false
  }

  private def causes(problem: Throwable): Iterator[Throwable] =
    Iterator.iterate(problem)(_.getCause).takeWhile(_ != null).take(MostCauses)

  private def parameter(name: String, kind: DataType, default: String, about: String): ProcedureParameter =
    ProcedureParameter.in(name, kind).defaultValue(default).comment(about).build()

  /** What was done.
    *
    * @param groups
    *   groups that were rewritten
    * @param failed
    *   why groups of the last pass could not be rewritten, whose files are not the reason
    * @param failedFiles
    *   the files of these groups
    * @param unread
    *   the files that could not be rewritten, and why
    * @param failing
    *   attempts that failed since one did not
    */
  private final case class Done(
      groups: Int = 0,
      files: Long = 0,
      added: Long = 0,
      bytes: Long = 0,
      failed: Seq[LakewardenException] = Nil,
      failedFiles: Int = 0,
      unread: ListMap[String, LakewardenException] = ListMap.empty,
      failing: Int = 0) {

    def and(group: FileGroup, outcome: Either[LakewardenException, Int]): Done = outcome match {
      case Right(come) =>
        copy(groups + 1, files + group.paths.size, added + come, bytes + group.bytes, failing = 0)
      case Left(why) =>
        val sum = failedOnce
        why.file.filter(file => group.paths.contains(file) && unread.size < mostUnread)
          .fold(sum.copy(failed = failed :+ why, failedFiles = failedFiles + group.paths.size))(file => sum.copy(unread = unread.updated(file, why)))
    }

    def failedOnce: Done = copy(failing = failing + 1)

    /** The request, for groups without the files that cannot be rewritten. */
    def without(request: ObjectNode): ObjectNode = {
      val asked = request.deepCopy
      unread.keys.foldLeft(asked.putArray("without"))((paths, path) => paths.add(path))
      asked
    }

    /** What nothing came of is refused, by its first reason. */
    def orRefusal: Done = problems.headOption.filter(_ => files == 0).fold(this) { first =>
      val all = told(problems.map(_.getMessage))
      throw new LakewardenException(first.kind, all.stripPrefix(s"${first.kind}: "), cause = first)
    }

    def row(left: JsonNode, removed: Int, forbidden: Boolean): InternalRow = {
      val problem = told(problems.map(_.getMessage))
      InternalRow(
        files.toInt, added.toInt, bytes, failedFiles + unread.size, removed, failed.size.toLong,
        Answers.field(left, "left-files").longValue, Answers.field(left, "left-bytes").longValue, forbidden,
        Option(problem).filter(_.nonEmpty).map(UTF8String.fromString).orNull)
    }

    private def problems: Seq[LakewardenException] = unread.values.toSeq ++ failed
  }

  /** A line each. */
  private def told(problems: Seq[String]): String = {
    val more = problems.size - mostTold
    (problems.take(mostTold) ++ Option.when(more > 0)(s"And $more more.")).mkString("\n")
  }
}
