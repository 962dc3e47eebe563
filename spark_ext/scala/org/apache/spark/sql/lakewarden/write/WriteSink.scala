package org.apache.spark.sql.lakewarden.write

import java.net.ConnectException

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.{CachedRows, FileGroup, TableHandle, TableRequests}
import org.apache.spark.sql.lakewarden.rest.CatalogClient

/** Where a write comes from and where its files go: the catalog at once, or a table that is still staged.
  *
  * `begin` is called when the write is carried out, not while it is planned; then either `commit` or `abort`.
  */
trait CommitTarget {

  /** What is done, as people read it. */
  def name: String

  def begin(): BegunWrite

  /** @param files what the tasks wrote, each as the catalog's commit takes it */
  def commit(files: Seq[JsonNode]): Unit

  /** Gives the write up, and its files. Calling it again has no effect. */
  def abort(): Unit
}

/** A write to a table that is there. */
abstract class BegunTarget(handle: TableHandle) extends CommitTarget {
  private var begun: Option[BegunWrite] = None

  override def begin(): BegunWrite = {
    val write = BegunWrite.parse(handle.client.post(handle.table.engineSegments("writes")))
    begun = Some(write)
    write
  }

  override def abort(): Unit = {
    begun.foreach(write => WriteRequests.abort(handle.client, write))
    begun = None
  }

  /** A commit that would change nothing is not made. It says by which schema rows were read and written. */
  protected def send(files: Seq[JsonNode], change: Change)(more: ObjectNode => Unit = _ => ()): Unit =
    if (change.isEmpty(files)) abort()
    else begun.foreach { write =>
      WriteRequests.commit(handle.client, write, files, change) { body =>
        body.put("schema-id", handle.table.schemaId)
        more(body)
      }
    }
}

/** A change of the rows of a table's branch.
  *
  * @param summary
  *   entries for the snapshot's summary
  */
final class TableTarget(handle: TableHandle, change: Change, summary: Map[String, String] = Map.empty)
    extends BegunTarget(handle) {
  override def name: String = change.name

  override def commit(files: Seq[JsonNode]): Unit = {
    send(files, change) { body =>
      handle.table.branch.put(body)
      WriteRequests.summarize(body, summary)
    }
    handle.table.readNames.foreach(CachedRows.drop)
  }
}

/** The same for a stream, whose epochs the catalog commits once. */
private[write] final class EpochTarget(handle: TableHandle, change: Change, summary: Map[String, String], queryId: String)
    extends BegunTarget(handle) {
  private var epoch = Option.empty[Long]

  override def name: String = change.name

  /** Says which epoch the next files are of. */
  def begin(number: Long): Unit = epoch = Some(number)

  override def commit(files: Seq[JsonNode]): Unit = epoch.foreach { number =>
    val entries = Map("spark.sql.streaming.queryId" -> queryId, "spark.sql.streaming.epochId" -> number.toString)
    send(files, new EpochOf(change, queryId, number)) { body =>
      handle.table.branch.put(body)
      WriteRequests.summarize(body, summary ++ entries)
    }
    handle.table.readNames.foreach(CachedRows.drop)
  }
}

/** The same rows in other files, in the place of those of some groups: one write, and one commit.
  *
  * Each group is written by a job of its own, maybe several at a time. What jobs that failed have written stays under
  * the id of the write, and is not committed.
  */
final class GroupsTarget(val handle: TableHandle) extends BegunTarget(handle) {
  private var write = Option.empty[BegunWrite]
  private var written = Seq.empty[(FileGroup, Seq[JsonNode])]

  override def name: String = "replace"

  /** Takes the files of one group. */
  def of(group: FileGroup): CommitTarget = new CommitTarget {
    override def name: String = GroupsTarget.this.name
    override def begin(): BegunWrite = GroupsTarget.this.begin()
    override def commit(files: Seq[JsonNode]): Unit = GroupsTarget.this.add(group, files)
    override def abort(): Unit = ()
  }

  override def begin(): BegunWrite = synchronized {
    val begun = write.getOrElse(super.begin())
    write = Some(begun)
    begun
  }

  private def add(group: FileGroup, files: Seq[JsonNode]): Unit = synchronized { written :+= group -> files }

  /** Commits what was written: the groups of it, and the number and size of their new files. */
  def land(): (Seq[FileGroup], (Int, Long)) = {
    val files = written.flatMap(_._2)
    if (written.isEmpty) abort() else commit(files)
    (written.map(_._1), (files.size, files.map(_.path("file-size-in-bytes").longValue).sum))
  }

  /** The groups are of the head of one branch. */
  override def commit(files: Seq[JsonNode]): Unit = {
    val groups = written.map(_._1)
    val all = groups.head.copy(paths = groups.flatMap(_.paths), sizes = groups.flatMap(_.sizes))
    send(files, Replace(all))()
  }
}

/** The write of a table that is made, or made anew, together with its first rows.
  *
  * Spark commits the rows first and the table afterwards. The catalog does both in one step, so `commit` keeps
  * the files, and `land`, which the staged table calls, sends them. Without rows, Spark commits the table alone.
  *
  * @param table
  *   its name, the catalog's before it
  */
final class StagedTarget(client: CatalogClient, table: Seq[String], write: BegunWrite) extends CommitTarget {
  private var files: Option[Seq[JsonNode]] = None
  private var summary = Map.empty[String, String]
  private var open = true

  override def name: String = Append.name

  /** With entries for the snapshot's summary. */
  def summarized(entries: Map[String, String]): StagedTarget = {
    summary = entries
    this
  }

  override def begin(): BegunWrite = write

  /** How many files were written. */
  def added: Int = files.fold(0)(_.size)

  override def commit(written: Seq[JsonNode]): Unit = files = Some(files.getOrElse(Nil) ++ written)

  /** Makes the table, with its first snapshot if Spark wrote rows. */
  def land(): Unit = {
    val change = if (files.isEmpty) NoRows else Append
    WriteRequests.commit(client, write, files.getOrElse(Nil), change)(WriteRequests.summarize(_, summary))
    open = false
    CachedRows.drop(table)
  }

  override def abort(): Unit = if (open) {
    open = false
    WriteRequests.abort(client, write)
  }
}

/** The requests that end a write (docs/rest-api.md, "Engines"). */
private[write] object WriteRequests {

  /** After these answers a commit is worth asking for again: twice is once. */
  private val Passing = Set("CatalogUnavailable", "CommitStateUnknown", "StateUnavailable", "StorageUnavailable")
  private val Attempts = 4
  private val FirstPauseMs = 250L

  /** @param more what else the body says */
  def commit(client: CatalogClient, write: BegunWrite, files: Seq[JsonNode], change: Change)(
      more: ObjectNode => Unit = _ => ()): Unit = {
    val body = JsonNodeFactory.instance.objectNode()
    change.put(body)
    val added = body.putArray("added")
    files.foreach(added.add)
    more(body)
    send(client, write, body, 1, mayHaveLanded = false)
  }

  /** Entries for the snapshot's summary. */
  def summarize(body: ObjectNode, entries: Map[String, String]): Unit =
    if (entries.nonEmpty) {
      body.set[ObjectNode]("summary", TableRequests.texts(entries))
      ()
    }

  def abort(client: CatalogClient, write: BegunWrite): Unit = client.delete(Seq("engine", "v1", "writes", write.id))

  private def send(
      client: CatalogClient, write: BegunWrite, body: ObjectNode, attempt: Int, mayHaveLanded: Boolean): Unit =
    try client.post(Seq("engine", "v1", "writes", write.id, "commit"), Some(body))
    catch {
      case problem: LakewardenException if Passing(problem.kind) =>
        val unknown = mayHaveLanded || isUnknown(problem)
        if (attempt == Attempts) throw (if (unknown) stateUnknown(problem) else problem)
        Thread.sleep(FirstPauseMs << attempt - 1)
        send(client, write, body, attempt + 1, unknown)
    }

  /** Whether the commit may have taken effect although this is the answer. */
  private def isUnknown(problem: LakewardenException): Boolean = problem.kind match {
    case "CatalogUnavailable" => !problem.below.exists(_.isInstanceOf[ConnectException])
    case kind                 => kind == "CommitStateUnknown"
  }

  private def stateUnknown(problem: LakewardenException): LakewardenException = new LakewardenException(
    "CommitStateUnknown", "The catalog did not confirm whether the rows were committed.", Some("commit-state"),
    Some("Check the table for the rows before you run the statement again, which could add them twice."), problem)
}
