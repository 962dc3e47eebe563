package org.apache.spark.sql.lakewarden.read

import java.io.{ByteArrayInputStream, EOFException}

import org.apache.parquet.io.{DelegatingSeekableInputStream, SeekableInputStream}

import org.apache.spark.sql.lakewarden.crypto.FooterDigest

/** The footer of a Parquet file as it was checked against its digest, at its place in the file; the rest is not there.
  *
  * What is parsed are these bytes, however often, so that a file that is changed meanwhile changes nothing of them.
  *
  * @param start
  *   where in the file the footer begins
  */
private[read] final class FooterStream(start: Long, footer: Array[Byte])
    extends DelegatingSeekableInputStream(new ByteArrayInputStream(footer)) {
  override def getPos: Long = start + footer.length - getStream.available

  override def seek(position: Long): Unit = {
    if (position < start || position > start + footer.length) throw new EOFException(
      "The position is outside the footer.")
    getStream.reset()
    getStream.skip(position - start)
    ()
  }
}

private[read] object FooterStream {

  /** What the footer of a file is to be read from: where its digest is known, the very bytes that have it, which are
    * read at once; else the file.
    *
    * Throws `DecryptionRefused` if the footer is not the one that was written.
    *
    * @param stream
    *   of the whole file
    */
  def of(file: PlannedFile, stream: SeekableInputStream, errors: ReadErrors): SeekableInputStream =
    file.footerDigest.fold(stream) { digest =>
      val start = file.size - digest.length
      if (start < 0 || digest.length < FooterDigest.EndLength || !digest.length.isValidInt) throw refused(errors)
      val footer = new Array[Byte](digest.length.toInt)
      try {
        stream.seek(start)
        stream.readFully(footer)
      } catch { case _: EOFException => throw refused(errors) }
      if (!digest.isOf(footer)) throw refused(errors)
      new FooterStream(start, footer)
    }

  private def refused(errors: ReadErrors): Exception =
    errors.refused("The SHA-256 digest of the file's footer differs from its key metadata.", "footer-digest")
}
