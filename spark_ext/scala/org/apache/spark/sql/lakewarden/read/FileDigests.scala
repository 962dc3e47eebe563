package org.apache.spark.sql.lakewarden.read

import java.io.InputStream
import java.nio.ByteBuffer
import java.nio.channels.SeekableByteChannel
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

private[read] object FileDigest {

  /** Out of the form that it has in key metadata. */
  def parse(bytes: Array[Byte]): FileDigest = {
    require(bytes.length == 40, "a file's digest has 40 bytes")
    FileDigest(bytes.toSeq)
  }
}

/** When files are checked against their digests: each time that one is opened, the first time in this JVM, or never. */
private[read] sealed abstract class Verification(val name: String)

private[read] object Verification {
  case object Never extends Verification("never")
  case object FirstRead extends Verification("first-read")
  case object Always extends Verification("always")

  val All: Seq[Verification] = Seq(Never, FirstRead, Always)
}

/** Verifies the digests of files.
  *
  * What is checked against a digest is what is read: a private copy, so that a file that is changed while a task reads
  * it is the one that was verified or none.
  */
private[read] final class FileDigests(verification: Verification) extends Serializable {

  /** The bytes of an opened file to read from: a copy of them, where they are to be checked against their digest now,
    * and then the file itself is closed.
    *
    * Throws `DecryptionRefused` if an encrypted file is not the one that was written. The file is closed if anything
    * fails.
    *
    * @param opened
    *   from its first byte on
    * @param reading
    *   makes of the copy what the format reads from
    */
  def verified[S <: InputStream](file: PlannedFile, opened: S, errors: ReadErrors)(
      reading: SeekableByteChannel => S): S =
    file.digest.filter(isDue(file.path, _)).fold(opened) { digest =>
      val copy =
        try FileDigests.copy(opened, digest, errors)
        finally opened.close()
      FileDigests.note(file.path, digest)
      reading(copy)
    }

  private def isDue(path: String, digest: FileDigest): Boolean = verification match {
    case Verification.Never     => false
    case Verification.FirstRead => !FileDigests.isKnown(path, digest)
    case Verification.Always    => true
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

  /** A copy that has the digest, at its first byte. */
  private def copy(from: InputStream, digest: FileDigest, errors: ReadErrors): SeekableByteChannel = {
    val copy = errors.kept(PrivateCopy.empty(digest.length))
    try {
      if (!MessageDigest.isEqual(fill(copy, from, digest.length, errors), digest.sha256))
        throw errors.refused(
          "The SHA-256 digest of the file differs from its key metadata: the file was changed or replaced.",
          "file-digest")
      copy.position(0)
    } catch {
      case failure: Throwable =>
        copy.close()
        throw failure
    }
  }

  /** Fills a copy; the SHA-256 of what is in it, which is one byte too many of a file that is too long. */
  private def fill(copy: SeekableByteChannel, from: InputStream, length: Long, errors: ReadErrors): Array[Byte] = {
    val sha256 = MessageDigest.getInstance("SHA-256")
    val chunk = new Array[Byte](math.min(ChunkBytes.toLong, length + 1).toInt)
    var left = length + 1
    var count = 0
    while (left > 0 && count >= 0) {
      count = from.read(chunk, 0, math.min(chunk.length.toLong, left).toInt)
      if (count > 0) {
        left -= count
        sha256.update(chunk, 0, count)
        val bytes = ByteBuffer.wrap(chunk, 0, count)
        while (bytes.hasRemaining) errors.kept(copy.write(bytes))
      }
    }
    sha256.digest()
  }
}
