package org.apache.spark.sql.lakewarden.rest

import java.io.{IOException, InputStream}
import java.net.ConnectException
import java.net.http.{HttpClient, HttpConnectTimeoutException, HttpRequest, HttpResponse, HttpTimeoutException}
import java.net.http.HttpRequest.BodyPublishers
import java.net.http.HttpResponse.BodyHandlers
import java.time.Duration
import java.util.UUID
import java.util.concurrent.atomic.AtomicLong

import com.fasterxml.jackson.core.JsonProcessingException
import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.MissingNode

import org.apache.spark.sql.lakewarden.LakewardenException

/** Asks the catalog over HTTP.
  *
  * Only the address given is asked: no redirect is followed, no proxy taken. A request is sent once more when
  * the connection broke before the answer. One that changes something carries an idempotency key, so that it
  * takes effect once (docs/rest-api.md, "Repeat a request").
  */
final class HttpCatalogClient(address: CatalogAddress, credentials: () => Credentials) extends CatalogClient {
  import HttpCatalogClient._

  override def get(path: Seq[String], query: Map[String, String]): JsonNode =
    json(send(request(path, query).GET, harmless = true))

  override def exists(path: Seq[String]): Option[Boolean] =
    answer(request(path, Map.empty).method("HEAD", BodyPublishers.noBody), harmless = true).statusCode match {
      case 204 => Some(true)
      case 404 => Some(false)
      case _   => None
    }

  override def post(path: Seq[String], body: Option[JsonNode]): JsonNode =
    json(changing(path)(send(posting(path, body), Harmless(path.last))))

  override def stream[T](path: Seq[String], body: JsonNode)(read: InputStream => T): T = {
    val answer = send(posting(path, Some(body)), Harmless(path.last))
    try read(answer.body)
    catch { case error: IOException => throw unavailable("The catalog's answer broke off", error) }
    finally answer.body.close()
  }

  override def delete(path: Seq[String], query: Map[String, String]): Unit =
    changing(path)(send(keyed(request(path, query)).DELETE, harmless = false).body.close())

  override def toString: String = s"HttpCatalogClient($address)"

  /** Counts what may have changed something, before its caller learns of it. */
  private def changing[T](path: Seq[String])(request: => T): T =
    try request
    finally if (!Reading(path.last)) changed.incrementAndGet()

  private def posting(path: Seq[String], body: Option[JsonNode]): HttpRequest.Builder = body match {
    case Some(content) =>
      val bytes = BodyPublishers.ofByteArray(Json.writeValueAsBytes(content))
      keyed(request(path, Map.empty)).header("Content-Type", "application/json").POST(bytes)
    case None => keyed(request(path, Map.empty)).POST(BodyPublishers.noBody)
  }

  private def keyed(builder: HttpRequest.Builder): HttpRequest.Builder =
    builder.header("Idempotency-Key", newKey().toString)

  private def request(path: Seq[String], query: Map[String, String]): HttpRequest.Builder =
    credentials().headers.foldLeft(HttpRequest.newBuilder(address.resolve(path, query)).timeout(AnswerWithin)) {
      case (builder, (name, value)) => builder.header(name, value)
    }

  private def send(builder: HttpRequest.Builder, harmless: Boolean): HttpResponse[InputStream] = {
    val answered = answer(builder, harmless)
    if (answered.statusCode / 100 == 2) answered else throw refusal(answered)
  }

  private def answer(builder: HttpRequest.Builder, harmless: Boolean): HttpResponse[InputStream] = {
    val request = builder.build()
    try Http.send(request, BodyHandlers.ofInputStream)
    catch {
      case error @ (_: ConnectException | _: HttpConnectTimeoutException) =>
        throw unavailable("The catalog cannot be reached", error)
      case error: HttpTimeoutException if harmless =>
        throw unavailable("The catalog does not answer in time", error)
      case error: HttpTimeoutException => throw unanswered(error)
      case error: IOException =>
        try Http.send(request, BodyHandlers.ofInputStream)
        catch {
          case _: IOException if harmless => throw unavailable("The connection to the catalog broke", error)
          case _: IOException             => throw unanswered(error)
        }
    }
  }

  private def json(answer: HttpResponse[InputStream]): JsonNode =
    try Json.readTree(bytes(answer)) match {
      case null => MissingNode.getInstance
      case node => node
    } catch {
      case error: JsonProcessingException => throw unavailable("What answers is not the catalog", error)
      case error: IOException             => throw unavailable("The catalog's answer broke off", error)
    }

  private def bytes(answer: HttpResponse[InputStream]): Array[Byte] =
    try answer.body.readAllBytes()
    finally answer.body.close()

  /** The catalog's refusal under its own name; what else may answer here is not the catalog. */
  private def refusal(answer: HttpResponse[InputStream]): LakewardenException = {
    val error = json(answer).path("error")
    val status = answer.statusCode
    if (!error.path("lakewarden").isTextual)
      unavailable(s"What answers is not the catalog: it gave status $status", null)
    else
      new LakewardenException(
        error.get("lakewarden").textValue, error.path("message").asText,
        Option(error.get("rule")).map(_.asText), Option(error.get("hint")).map(_.asText))
  }

  private def unanswered(cause: IOException): LakewardenException = new LakewardenException(
    "CommitStateUnknown", s"The connection to the catalog broke before it answered, at $address.", Some("catalog"),
    Some("The change may have been made: look before you run the statement again."), cause)

  private def unavailable(problem: String, cause: Throwable): LakewardenException = new LakewardenException(
    "CatalogUnavailable", s"$problem, at $address.", Some("catalog"),
    Some("Nothing is read or written without it; try again when it answers."), cause)
}

object HttpCatalogClient {

  private val Reading = Set("load", "plan", "rewrites")

  /** Operations of which nothing is left if they are not answered: they read, or begin what expires. */
  private val Harmless = Reading ++ Set("writes", "staged-writes")
  private val changed = new AtomicLong

  /** How many requests of this JVM may have changed something in a catalog. */
  def changes: Long = changed.get

  /** A new idempotency key: a UUIDv7 (RFC 9562, section 5.7). */
  private def newKey(): UUID = {
    val random = UUID.randomUUID()
    val high = System.currentTimeMillis() << 16 | 0x7000L | random.getMostSignificantBits & 0xfffL
    new UUID(high, random.getLeastSignificantBits)
  }

  private val ConnectWithin = Duration.ofSeconds(10)
  private val AnswerWithin = Duration.ofMinutes(5)
  private val Json = new ObjectMapper

  /** One for the JVM: its connections are kept open, and carry no identity; each request brings its own. */
  private lazy val Http: HttpClient = HttpClient.newBuilder
    .version(HttpClient.Version.HTTP_1_1)
    .followRedirects(HttpClient.Redirect.NEVER)
    .proxy(HttpClient.Builder.NO_PROXY)
    .connectTimeout(ConnectWithin)
    .build()
}
