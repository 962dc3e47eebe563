package org.apache.spark.sql.lakewarden.read

import java.nio.channels.SeekableByteChannel
import java.util.UUID

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.crypto.{DataKeys, FileIdentity, Footer, KeyLabel, Secret, TransportKey, WrappedKey}

/** The data keys of one file, opened.
  *
  * @param columns
  *   the released keys of groups of columns; none for a file that is encrypted whole
  */
private[read] final case class OpenedKeys(
    algorithm: String, footer: Footer, file: FileIdentity, whole: Secret, columns: Option[Seq[(KeyLabel, Secret)]])

/** What every file of a scan passes before it is opened, whatever its format: the path is checked, then the data
  * keys opened.
  *
  * @param table
  *   its full name
  * @param transport
  *   the key that the data keys are wrapped under
  * @param digests
  *   verifies the digests of opened files
  */
private[read] final class FileGate(
    table: String, uuid: UUID, allowed: AllowedPaths, transport: Option[TransportKey], val digests: FileDigests)
    extends Serializable {

  /** Throws `LocationNotAllowed` for a path outside. */
  def location(file: PlannedFile): Location = allowed.check(file.location, table)

  /** The file's keys; none for plaintext. Throws `DecryptionRefused` for keys that are not this file's. */
  def keys(file: PlannedFile, errors: ReadErrors): Option[OpenedKeys] =
    (file.algorithm.zip(file.footer), file.keys, transport) match {
      case (None, Seq(), _) if file.algorithm.isEmpty && file.footer.isEmpty && file.footerDigest.isEmpty => None
      case (Some((algorithm, footer)), whole +: columns, Some(transport))
          if whole.label.fieldIds.isEmpty && areApart(columns.map(_.label.fieldIds)) &&
            (file.columnKeys || columns.isEmpty && file.footerDigest.isEmpty) =>
        try {
          val identity = FileIdentity.of(uuid, file.location)
          def opened(key: WrappedKey): Secret = DataKeys.open(transport, key, identity)
          val own = if (file.columnKeys) Some(columns.map(key => key.label -> opened(key))) else None
          Some(OpenedKeys(algorithm, footer, identity, opened(whole), own))
        } catch {
          case _: LakewardenException => throw errors.refused(
            "The data key in the scan plan belongs to another file.", "data-key")
        }
      case _ => throw errors.refused("The keys in the scan plan do not match the file's encryption.", "data-key")
    }

  /** Whether each key is for some columns, and no column has two. */
  private def areApart(fieldIds: Seq[Seq[Int]]): Boolean =
    fieldIds.forall(_.nonEmpty) && fieldIds.flatten.distinct.size == fieldIds.flatten.size

  /** A local file, opened without following a link; what was opened is what is to be read. */
  def openLocal(location: Location, file: PlannedFile, errors: ReadErrors): SeekableByteChannel = {
    val channel = new LocalFile(errors).open(location)
    val size = channel.size
    if (size != file.size) {
      channel.close()
      throw errors.refused(s"The file has $size bytes, but its manifest lists ${file.size}.", "file-size")
    }
    new CountedChannel(channel)
  }
}
