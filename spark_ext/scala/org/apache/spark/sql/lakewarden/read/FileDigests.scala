package org.apache.spark.sql.lakewarden.read

import java.io.InputStream
import java.nio.ByteBuffer
import java.security.MessageDigest
import java.util.{Collections, LinkedHashMap => JLinkedHashMap, Map => JMap}

/** What a file is, byte for byte, as its key metadata keeps it.
  *
  * @param bytes
  *   its length (8 bytes) and SHA-256
  */
private[read] final case class FileDigest(bytes: Seq[Byte]) {
  def length: Long = ByteBuffer.wrap(bytes.toArray).getLong
  def sha256: Array[Byte] = bytes.drop(8).toArray
}

/** When files are held against their digests: each time that one is opened, the first time in this JVM, or never. */
private[read] sealed abstract class Verification(val name: String)

private[read] object Verification {
  case object Never extends Verification("never")
  case object FirstRead extends Verification("first-read")
  case object Always extends Verification("always")

  val All: Seq[Verification] = Seq(Never, FirstRead, Always)
}

/** Holds files against their digests. */
private[read] final class FileDigests(verification: Verification) extends Serializable {

  /** Throws `DecryptionRefused` if an encrypted file is not the one that was written.
    *
    * @param start
    *   the opened file from its first byte on, which is read to the end if it has to be
    */
  def verify(file: PlannedFile, start: => InputStream, errors: ReadErrors): Unit =
    file.digest.filter(digest => verification match {
      case Verification.Never     => false
      case Verification.FirstRead => !FileDigests.isKnown(file.path, digest)
      case Verification.Always    => true
    }).foreach { digest =>
      val (length, sha256) = FileDigests.read(start)
      if (length != digest.length || !MessageDigest.isEqual(sha256, digest.sha256))
        throw errors.refused("The file is not, byte for byte, the one that the table was written with.", "file-digest")
      FileDigests.note(file.path, digest)
    }
}

private object FileDigests {
  private val ChunkBytes = 1 << 20
  private val MostKnown = 100000

  /** Files that were right when this JVM read them first, the longest unused first. */
  private val known = Collections.synchronizedMap(new JLinkedHashMap[(String, FileDigest), Unit](16, 0.75f, true) {
    override def removeEldestEntry(eldest: JMap.Entry[(String, FileDigest), Unit]): Boolean = size > MostKnown
  })

  private def isKnown(path: String, digest: FileDigest): Boolean = known.containsKey(path -> digest)
  private def note(path: String, digest: FileDigest): Unit = { known.put(path -> digest, ()); () }

  private def read(stream: InputStream): (Long, Array[Byte]) = {
    val sha256 = MessageDigest.getInstance("SHA-256")
    val chunk = new Array[Byte](ChunkBytes)
    val counts = Iterator.continually(stream.read(chunk)).takeWhile(_ >= 0).map { count =>
      sha256.update(chunk, 0, count)
      count.toLong
    }
    (counts.sum, sha256.digest())
  }
}
