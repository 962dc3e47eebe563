package org.apache.spark.sql.lakewarden.rest

import java.io.{IOException, InputStream}
import java.net.ConnectException
import java.net.http.{HttpClient, HttpConnectTimeoutException, HttpRequest, HttpResponse, HttpTimeoutException}
import java.net.http.HttpRequest.BodyPublishers
import java.net.http.HttpResponse.BodyHandlers
import java.time.Duration
import java.util.UUID
import java.util.concurrent.atomic.AtomicLong
import javax.net.ssl.SSLHandshakeException

import com.fasterxml.jackson.core.JsonProcessingException
import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.MissingNode

import org.apache.spark.SparkContext
import org.apache.spark.sql.execution.SQLExecution
import org.apache.spark.sql.lakewarden.LakewardenException

/** Asks the catalog over HTTP.
  *
  * Paths are given as segments, which are encoded here. Every refusal of the catalog becomes a
  * `LakewardenException` of the same kind; what does not answer is `CatalogUnavailable`.
  *
  * Only the address given is asked: no redirect is followed, no proxy taken. A request is sent up to
  * three times when the connection broke before the answer: one of them may meet a kept connection that the
  * service has closed. One that changes something carries an idempotency key, so that it
  * takes effect once (docs/rest-api.md, "Repeat a request").
  */
final class CatalogClient(address: CatalogAddress, credentials: () => Credentials) {
  import CatalogClient._

  def get(path: Seq[String], query: Map[String, String] = Map.empty): JsonNode =
    json(send(request("GET", path, query), harmless = true))

  /** Whether there is something; none if this is not told, which another request then says why. */
  def exists(path: Seq[String]): Option[Boolean] =
    answer(request("HEAD", path, Map.empty), harmless = true).statusCode match {
      case 204 => Some(true)
      case 404 => Some(false)
      case _   => None
    }

  /** @return the answer, or a missing node for an empty one */
  def post(path: Seq[String], body: Option[JsonNode] = None): JsonNode =
    json(changing(path)(send(posting(path, body), Harmless(path.last))))

  /** The answer as a stream, for plans. */
  def stream[T](path: Seq[String], body: JsonNode)(read: InputStream => T): T = {
    val answer = send(posting(path, Some(body)), Harmless(path.last))
    try read(answer.body)
    catch { case error: IOException => throw unavailable("The response of the catalog is incomplete", error) }
    finally answer.body.close()
  }

  def delete(path: Seq[String], query: Map[String, String] = Map.empty): Unit =
    changing(path)(send(request("DELETE", path, query).keyed, harmless = false).body.close())

  override def toString: String = s"CatalogClient($address)"

  /** Counts what may have changed something, before its caller learns of it. */
  private def changing[T](path: Seq[String])(request: => T): T =
    try request
    finally if (!Reading(path.last)) changed.incrementAndGet()

  private def posting(path: Seq[String], body: Option[JsonNode]): Request =
    Request("POST", address.target(path, Map.empty), body.map(Json.writeValueAsBytes), Some(newKey().toString))

  private def request(method: String, path: Seq[String], query: Map[String, String]): Request =
    Request(method, address.target(path, query), None, None)

  /** Sends a request; once more, by the catalog's time, where the signature is refused as stale. */
  private def sent(request: Request): HttpResponse[InputStream] = {
    val by = credentials()
    val answered = Http.send(built(request, by), BodyHandlers.ofInputStream)
    val time = answered.headers.firstValueAsLong("Lakewarden-Time")
    if (answered.statusCode == 401 && time.isPresent && by.follow(time.getAsLong)) {
      answered.body.close()
      Http.send(built(request, by), BodyHandlers.ofInputStream)
    } else answered
  }

  /** The query that runs here, for the log and the traces of the catalog: application and number of the execution. */
  private def runningQuery: Option[String] =
    for {
      context <- SparkContext.getActive
      number <- Option(context.getLocalProperty(SQLExecution.EXECUTION_ID_KEY))
    } yield s"${context.applicationId}/$number"

  private def built(request: Request, by: Credentials): HttpRequest = {
    val content = request.body.getOrElse(Array.emptyByteArray)
    val publisher = request.body.fold(BodyPublishers.noBody)(BodyPublishers.ofByteArray)
    val builder = HttpRequest.newBuilder(address.resolve(request.target)).timeout(AnswerWithin)
    request.body.foreach(_ => builder.header("Content-Type", "application/json"))
    runningQuery.foreach(builder.header("Lakewarden-Query", _))
    val signed = by.headers(request.method, request.target, request.idempotencyKey, content)
    signed.foreach { case (name, value) => builder.header(name, value) }
    builder.method(request.method, publisher).build()
  }

  private def send(request: Request, harmless: Boolean): HttpResponse[InputStream] = {
    val answered = answer(request, harmless)
    if (answered.statusCode / 100 == 2) answered else throw refusal(answered)
  }

  private def answer(request: Request, harmless: Boolean): HttpResponse[InputStream] =
    try sentUpTo(Sends, request)
    catch {
      case error @ (_: ConnectException | _: HttpConnectTimeoutException) =>
        throw unavailable("The catalog cannot be reached", error)
      case error: SSLHandshakeException => throw untrusted(error)
      case error: HttpTimeoutException if harmless =>
        throw unavailable("The catalog did not respond in time", error)
      case error: IOException if harmless => throw unavailable("The connection to the catalog broke", error)
      case error: IOException             => throw unanswered(error)
    }

  private def sentUpTo(times: Int, request: Request): HttpResponse[InputStream] =
    try sent(request)
    catch {
      case error @ (_: ConnectException | _: HttpTimeoutException | _: SSLHandshakeException) => throw error
      case broken: IOException if times > 1 =>
        try sentUpTo(times - 1, request)
        catch {
          // The request that broke may have taken effect, although the catalog cannot be reached now.
          case _: ConnectException | _: HttpConnectTimeoutException => throw broken
        }
    }

  private def json(answer: HttpResponse[InputStream]): JsonNode =
    try Json.readTree(bytes(answer)) match {
      case null => MissingNode.getInstance
      case node => node
    } catch {
      case error: JsonProcessingException => throw unavailable("The response is not from a Lakewarden catalog", error)
      case error: IOException             => throw unavailable("The response of the catalog is incomplete", error)
    }

  private def bytes(answer: HttpResponse[InputStream]): Array[Byte] =
    try answer.body.readAllBytes()
    finally answer.body.close()

  /** The catalog's refusal under its own name; what else may answer here is not the catalog. */
  private def refusal(answer: HttpResponse[InputStream]): LakewardenException = {
    val error = json(answer).path("error")
    val status = answer.statusCode
    if (!error.path("lakewarden").isTextual)
      unavailable(s"The response is not from a Lakewarden catalog (HTTP status $status)", null)
    else LakewardenException.of(error)
  }

  private def unanswered(cause: IOException): LakewardenException = new LakewardenException(
    "CommitStateUnknown", s"The connection to the catalog at $address broke before a response arrived.",
      Some("catalog"),
    Some("The change might have taken effect. Check the table before you run the statement again."), cause)

  private def untrusted(cause: Throwable): LakewardenException = new LakewardenException(
    "CatalogUnavailable", s"The certificate of the catalog at $address is not trusted.", Some("catalog-certificate"),
    Some(s"Check the address, and name the authority of its certificate with ${Authorities.FileVariable}."), cause)

  private def unavailable(problem: String, cause: Throwable): LakewardenException = new LakewardenException(
    "CatalogUnavailable", s"$problem, at $address.", Some("catalog"),
    Some("Check that the service is running, and try again."), cause)
}

object CatalogClient {

  private val Sends = 3
  private val Reading = Set("load", "plan", "inspect", "rewrites", "position-deletes", "code", "ancestors")

  /** Operations of which nothing is left if they are not answered: they read, or begin what expires. */
  private val Harmless = Reading ++ Set("writes", "staged-writes")
  private val changed = new AtomicLong

  /** A request before it is signed.
    *
    * @param target
    *   path and query below the catalog's address
    * @param idempotencyKey
    *   the same each time that it is sent
    */
  private final case class Request(
      method: String, target: String, body: Option[Array[Byte]], idempotencyKey: Option[String]) {
    def keyed: Request = copy(idempotencyKey = Some(newKey().toString))
  }

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
  private lazy val Http: HttpClient = {
    val builder = HttpClient.newBuilder
      .version(HttpClient.Version.HTTP_1_1)
      .followRedirects(HttpClient.Redirect.NEVER)
      .proxy(HttpClient.Builder.NO_PROXY)
      .connectTimeout(ConnectWithin)
    Authorities.of(sys.env).foreach(builder.sslContext)
    builder.build()
  }
}
