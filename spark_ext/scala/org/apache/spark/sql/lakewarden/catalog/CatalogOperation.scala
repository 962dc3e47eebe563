package org.apache.spark.sql.lakewarden.catalog

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{ArrayNode, JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.rest.{Answers, CatalogClient}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** A procedure that the catalog carries out: one request with the arguments as its body, whose answer is shown as rows.
  *
  * @param path
  *   of the operation, below that of the table (`/engine/v1/tables/{namespace}/{table}`)
  * @param answers
  *   the field of the answer that is the list of rows; none: the answer is the row
  * @param columns
  *   of a row
  * @param arguments
  *   behind the table's name, in order
  * @param paged
  *   whether the operation is asked for again until `next` of its answer is null. Rows of lists follow each other, the
  *   numbers of single rows are added up, and their texts are lines
  */
private[catalog] final case class CatalogOperation(
    name: String, about: String, path: Seq[String], answers: Option[String], columns: Seq[Shown],
    arguments: Seq[Argument] = Nil, paged: Boolean = false) {
  val schema: StructType = StructType(columns.map(each => StructField(each.column, each.kind, each.nullable)))

  /** The body of a request. Throws `NotSupportedYet` for an argument that nothing here obeys. */
  def body(values: InternalRow): ObjectNode = {
    val request = JsonNodeFactory.instance.objectNode
    for ((argument, at) <- arguments.zip(LazyList.from(1)) if !values.isNullAt(at)) argument.put(request, values, at)
    request
  }

  /** The rows of the answers. */
  def rows(pages: Seq[JsonNode]): Array[InternalRow] = answers match {
    case Some(field)             => pages.flatMap(Answers.field(_, field).elements.asScala.map(row)).toArray
    case None if pages.size == 1 => pages.map(row).toArray
    case None                    => Array(InternalRow.fromSeq(columns.map(each => each.all(pages))))
  }

  /** How many files a page is about; none for other operations. */
  def found(page: JsonNode): Option[Long] = Option.when(paged)(answers.fold(
    columns.filter(_.kind == LongType).map(each => Answers.field(page, each.field).longValue).sum)(field => Answers.field(page, field).size.toLong))

  /** The answers to a request, each asked for with `after` out of the one before. */
  def ask(body: ObjectNode)(send: ObjectNode => JsonNode): Seq[JsonNode] =
    Iterator.unfold(Option(body)) {
      _.map { request =>
        val answer = send(request)
        val next = if (paged) Option(Answers.field(answer, "next")).filterNot(_.isNull) else None
        (answer, next.map(after => body.deepCopy.set[ObjectNode]("after", after)))
      }
    }.toSeq

  private def row(answered: JsonNode): InternalRow =
    InternalRow.fromSeq(columns.map(each => each.of(Answers.field(answered, each.field))))
}

/** A column of a procedure's rows.
  *
  * @param field
  *   of the answer; the column has the same name with underscores
  */
private[catalog] final case class Shown(field: String, kind: DataType = LongType, nullable: Boolean = false) {
  def column: String = field.replace('-', '_')

  /** Of several answers: the sum of numbers, and a line for each text. */
  def all(answers: Seq[JsonNode]): Any = {
    val found = answers.map(Answers.field(_, field)).filterNot(_.isNull)
    if (kind != StringType) found.map(_.longValue).sum
    else Option.when(found.nonEmpty)(UTF8String.fromString(found.map(_.asText).distinct.mkString("\n"))).orNull
  }

  def of(node: JsonNode): Any = kind match {
    case _ if node.isNull => null
    case StringType       => UTF8String.fromString(node.asText)
    case IntegerType      => node.intValue
    case BooleanType      => node.booleanValue
    case _                => node.longValue
  }
}

/** A parameter of a procedure, and what its argument is in the request: the field of the same name with hyphens.
  *
  * @param obeyed
  *   false: it exists in Iceberg, and is refused
  */
private[catalog] final case class Argument(
    name: String, kind: DataType, about: String, required: Boolean = false, obeyed: Boolean = true) {

  def parameter: ProcedureParameter = {
    val made = ProcedureParameter.in(name, kind).comment(about)
    (if (required) made else made.defaultValue("NULL")).build()
  }

  def refuse(): Nothing = throw LakewardenException.notSupportedYet(
    s"The parameter $name is not supported.", "procedure-parameter", s"Remove it from the call. $about")

  def put(request: ObjectNode, values: InternalRow, at: Int): Unit = {
    if (!obeyed) refuse()
    val field = name.replace('_', '-')
    kind match {
      case StringType    => request.put(field, values.getUTF8String(at).toString)
      case IntegerType   => request.put(field, values.getInt(at))
      case LongType      => request.put(field, values.getLong(at))
      case BooleanType   => request.put(field, values.getBoolean(at))
      case TimestampType => request.put(s"$field-ms", Math.floorDiv(values.getLong(at), 1000L))
      case ArrayType(element, _) => putAll(request.putArray(field), values.getArray(at).toSeq[Any](element))
      case _: MapType =>
        val entries = request.putObject(field)
        Argument.texts(values, at).foreach { case (key, value) => entries.put(key, value) }
      case other => throw new IllegalStateException(s"A parameter of type $other.")
    }
    ()
  }

  private def putAll(array: ArrayNode, elements: Seq[Any]): Unit = elements.foreach {
    case null         => array.addNull()
    case number: Long => array.add(number)
    case other        => array.add(other.toString)
  }
}

private[catalog] object Argument {
  val Texts: MapType = MapType(StringType, StringType)

  /** The entries of a map of texts. */
  def texts(values: InternalRow, at: Int): Seq[(String, String)] = {
    val map = values.getMap(at)
    val names = map.keyArray().toSeq[Any](StringType).map(String.valueOf)
    names.zip(map.valueArray().toSeq[Any](StringType).map(String.valueOf))
  }

  /** Puts the options of a procedure into a request. */
  def putOptions(request: ObjectNode, values: InternalRow, at: Int): Unit = if (!values.isNullAt(at)) {
    val options = request.putObject("options")
    texts(values, at).foreach { case (name, value) => options.put(name, value) }
  }

  /** One that Iceberg has, and that has no effect here. */
  def refused(name: String, kind: DataType, about: String): Argument = Argument(name, kind, about, obeyed = false)
}

/** A procedure that asks the catalog for one operation on a table. */
private final class CatalogProcedure(operation: CatalogOperation, catalogName: String, client: CatalogClient)
    extends TableProcedure(catalogName) {
  override def name: String = operation.name
  override def description: String = operation.about
  override def parameters: Array[ProcedureParameter] = super.parameters ++ operation.arguments.map(_.parameter)

  override protected def answer(table: Identifier, arguments: InternalRow, progress: Progress): AnsweredRows = {
    val request = operation.body(arguments)
    var (files, requests) = (0L, 0)
    val answered = operation.ask(request) { body =>
      val page = post(client, table, operation.path, body)
      operation.found(page).foreach { more =>
        files += more
        requests += 1
        progress.reached(s"$files files by $requests requests")
      }
      page
    }
    val name = catalogName +: table.namespace.toSeq :+ table.name
    CachedRows.drop(name)
    Option(request.get("branch")).foreach(branch => CachedRows.drop(name :+ s"branch_${branch.asText}"))
    new AnsweredRows(operation.schema, operation.rows(answered))
  }
}
