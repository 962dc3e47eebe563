package org.apache.spark.sql.lakewarden.read

import java.io.IOException
import java.nio.charset.StandardCharsets.US_ASCII
import java.util.UUID

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, Path}
import org.apache.parquet.HadoopReadOptions
import org.apache.parquet.crypto.{AesCtrDecryptor, AesGcmDecryptor, FileDecryptionProperties}
import org.apache.parquet.format.BlockCipher
import org.apache.parquet.hadoop.ParquetFileReader
import org.apache.parquet.hadoop.metadata.FileMetaData.EncryptionType
import org.apache.parquet.hadoop.metadata.ParquetMetadata
import org.apache.parquet.hadoop.util.{HadoopInputFile, HadoopStreams}
import org.apache.parquet.io.SeekableInputStream

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.crypto.{DataKeys, FileIdentity, TransportKey}
import org.apache.spark.sql.lakewarden.write.StoredPath

/** A file that has passed the guard: what was judged is what will be read, the same stream and footer. */
private[read] final case class OpenedFile(
    path: Path, input: HadoopInputFile, stream: SeekableInputStream, footer: ParquetMetadata)

/** Opens the files of one scan, on an executor.
  *
  * The order is fixed: the path is checked, then the data key opened, then the file, and its footer held against
  * what the regime of the file says. Nothing of a file is used before that.
  *
  * @param table
  *   its full name
  * @param transport
  *   the key that the data keys are wrapped under
  */
private[read] final class GuardedFiles(
    table: String, uuid: UUID, allowed: AllowedPaths, transport: Option[TransportKey]) extends Serializable {

  /** Throws what `errors` makes of a file that is missing, damaged, or not what its regime says. */
  def open(split: FileSplit, conf: Configuration, errors: ReadErrors): OpenedFile = {
    val location = allowed.check(split.file.path, table)
    val decryption = properties(split.file, errors)
    val (input, stream) = opened(location, split.file, conf, errors)
    try {
      val options = HadoopReadOptions.builder(conf, input.getPath).withRange(split.start, split.start + split.length)
      decryption.foreach(options.withDecryption)
      val footer = ParquetFileReader.readFooter(input, options.build(), stream)
      judge(footer, split.file.algorithm, errors)
      OpenedFile(input.getPath, input, stream, footer)
    } catch {
      case failure: Throwable =>
        val told = failure match {
          case known: LakewardenException => known
          case NonFatal(_)                => mistaken(stream, input, split.file, errors).getOrElse(failure)
          case fatal                      => fatal
        }
        stream.close()
        throw told
    }
  }

  /** How to decrypt the file; none for plaintext. */
  private def properties(file: PlannedFile, errors: ReadErrors): Option[FileDecryptionProperties] =
    (file.algorithm, file.keys, transport) match {
      case (None, Seq(), _) => None
      case (Some(_), Seq(key), Some(transport)) if key.label.fieldIds.isEmpty =>
        try {
          val identity = FileIdentity.of(uuid, file.path)
          val dek = DataKeys.open(transport, key, identity).reveal
          Some(FileDecryptionProperties.builder.withFooterKey(dek).withAADPrefix(identity.aadPrefix).build())
        } catch {
          case _: LakewardenException => throw errors.refused("The file's data key is not of this file.", "data-key")
        }
      case (Some(_), keys, Some(_)) if keys.nonEmpty =>
        throw errors.unsupported("Files with keys for single columns are not read yet.", "column-keys")
      case _ => throw errors.refused("The plan's keys do not agree with how the file is encrypted.", "data-key")
    }

  private def opened(
      location: Location, file: PlannedFile, conf: Configuration, errors: ReadErrors)
      : (HadoopInputFile, SeekableInputStream) = {
    val path = StoredPath.of(file.path, conf)
    val input = HadoopInputFile.fromStatus(new FileStatus(file.size, false, 1, 0, 0, path), conf)
    if (!location.isLocal) (input, HadoopStreams.wrap(StoredPath.fileSystem(path, conf).open(path)))
    else {
      val channel = new LocalFile(errors).open(location)
      if (channel.size != file.size) {
        channel.close()
        throw errors.refused("The file has another size than the table says.", "file-size")
      }
      (input, new ChannelStream(channel))
    }
  }

  private def judge(footer: ParquetMetadata, algorithm: Option[String], errors: ReadErrors): Unit = {
    val found = footer.getFileMetaData.getEncryptionType
    algorithm match {
      case None => if (found != EncryptionType.UNENCRYPTED) throw encrypted(errors)
      case Some(name) =>
        if (found != EncryptionType.ENCRYPTED_FOOTER || !decryptors(footer).forall(GuardedFiles.is(name, _)))
          throw errors.refused(s"The file is not encrypted as a whole with $name.", "algorithm")
    }
  }

  /** How the pages of each column of the row groups that will be read are decrypted; null for plaintext. */
  private def decryptors(footer: ParquetMetadata): Seq[BlockCipher.Decryptor] = {
    val decryptor = footer.getFileMetaData.getFileDecryptor
    val columns = footer.getBlocks.asScala.flatMap(_.getColumns.asScala.map(_.getPath)).toSet
    columns.toSeq.map(decryptor.getColumnSetup).map(each => if (each.isEncrypted) each.getDataDecryptor else null)
  }

  /** Says of a file that could not be opened whether it is in plaintext where it should not be, or encrypted. */
  private def mistaken(
      stream: SeekableInputStream, input: HadoopInputFile, file: PlannedFile, errors: ReadErrors)
      : Option[LakewardenException] = {
    val magic = new Array[Byte](4)
    try {
      stream.seek(math.max(0, input.getLength - magic.length))
      stream.readFully(magic)
    } catch { case _: IOException => return None }
    (new String(magic, US_ASCII), file.algorithm) match {
      case ("PAR1", Some(_)) =>
        Some(errors.refused("The file is in plaintext, and the table is encrypted.", "plaintext-file"))
      case ("PARE", None) => Some(encrypted(errors))
      case _              => None
    }
  }

  private def encrypted(errors: ReadErrors): LakewardenException =
    errors.damaged("The file is encrypted, and the table says that it is not.", "encrypted-file")
}

private[read] object GuardedFiles {
  private def is(algorithm: String, decryptor: BlockCipher.Decryptor): Boolean = (algorithm, decryptor) match {
    case ("AES_GCM_V1", _: AesGcmDecryptor)     => true
    case ("AES_GCM_CTR_V1", _: AesCtrDecryptor) => true
    case _                                      => false
  }
}
