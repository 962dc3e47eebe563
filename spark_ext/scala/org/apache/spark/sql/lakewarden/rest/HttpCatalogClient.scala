package org.apache.spark.sql.lakewarden.rest

import java.io.{IOException, InputStream}
import java.net.ConnectException
import java.net.http.{HttpClient, HttpConnectTimeoutException, HttpRequest, HttpResponse, HttpTimeoutException}
import java.net.http.HttpRequest.BodyPublishers
import java.net.http.HttpResponse.BodyHandlers
import java.time.Duration
import java.util.concurrent.atomic.AtomicLong

import com.fasterxml.jackson.core.JsonProcessingException
import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.MissingNode

import org.apache.spark.sql.lakewarden.LakewardenException

/** Asks the catalog over HTTP.
  *
  * Only the address given is asked: no redirect is followed, no proxy taken. A request is sent once, except for
  * those that change nothing when they come twice (`HttpCatalogClient.Repeatable`), which are sent again when
  * the connection broke before the answer.
  */
final class HttpCatalogClient(address: CatalogAddress, credentials: () => Credentials) extends CatalogClient {
  import HttpCatalogClient._

  override def get(path: Seq[String], query: Map[String, String]): JsonNode =
    json(send(request(path, query).GET, repeatable = true))

  override def exists(path: Seq[String]): Option[Boolean] =
    answer(request(path, Map.empty).method("HEAD", BodyPublishers.noBody), repeatable = true).statusCode match {
      case 204 => Some(true)
      case 404 => Some(false)
      case _   => None
    }

  override def post(path: Seq[String], body: Option[JsonNode]): JsonNode =
    json(changing(path)(send(posting(path, body), Repeatable(path.last))))

  override def stream[T](path: Seq[String], body: JsonNode)(read: InputStream => T): T = {
    val answer = send(posting(path, Some(body)), Repeatable(path.last))
    try read(answer.body)
    catch { case error: IOException => throw unavailable("The catalog's answer broke off", error) }
    finally answer.body.close()
  }

  override def delete(path: Seq[String], query: Map[String, String]): Unit =
    changing(path)(send(request(path, query).DELETE, repeatable = false).body.close())

  override def toString: String = s"HttpCatalogClient($address)"

  /** Counts what may have changed something, before its caller learns of it. */
  private def changing[T](path: Seq[String])(request: => T): T =
    try request
    finally if (!Reading(path.last)) changed.incrementAndGet()

  private def posting(path: Seq[String], body: Option[JsonNode]): HttpRequest.Builder = body match {
    case Some(content) =>
      val bytes = BodyPublishers.ofByteArray(Json.writeValueAsBytes(content))
      request(path, Map.empty).header("Content-Type", "application/json").POST(bytes)
    case None => request(path, Map.empty).POST(BodyPublishers.noBody)
  }

  private def request(path: Seq[String], query: Map[String, String]): HttpRequest.Builder =
    credentials().headers.foldLeft(HttpRequest.newBuilder(address.resolve(path, query)).timeout(AnswerWithin)) {
      case (builder, (name, value)) => builder.header(name, value)
    }

  private def send(builder: HttpRequest.Builder, repeatable: Boolean): HttpResponse[InputStream] = {
    val answered = answer(builder, repeatable)
    if (answered.statusCode / 100 == 2) answered else throw refusal(answered)
  }

  private def answer(builder: HttpRequest.Builder, repeatable: Boolean): HttpResponse[InputStream] = {
    val request = builder.build()
    try Http.send(request, BodyHandlers.ofInputStream)
    catch {
      case error @ (_: ConnectException | _: HttpConnectTimeoutException) =>
        throw unavailable("The catalog cannot be reached", error)
      case error: IOException if !repeatable => throw unanswered(error)
      case error: HttpTimeoutException       => throw unavailable("The catalog does not answer in time", error)
      case error: IOException =>
        try Http.send(request, BodyHandlers.ofInputStream)
        catch { case _: IOException => throw unavailable("The connection to the catalog broke", error) }
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

  /** Operations that may come twice: they read, begin what is swept if nobody goes on with it, or are one
    * commit however often they come (docs/rest-api.md, "Engines").
    */
  private val Repeatable = Set("load", "plan", "writes", "staged-writes", "commit", "rewrites", "forbid-old")
  private val Reading = Set("load", "plan", "rewrites")
  private val changed = new AtomicLong

  /** How many requests of this JVM may have changed something in a catalog. */
  def changes: Long = changed.get

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
