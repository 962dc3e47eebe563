package org.apache.spark.sql.lakewarden.read

import java.io.IOException
import java.nio.charset.StandardCharsets.US_ASCII

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, Path}
import org.apache.parquet.HadoopReadOptions
import org.apache.parquet.crypto.FileDecryptionProperties
import org.apache.parquet.hadoop.ParquetFileReader
import org.apache.parquet.hadoop.metadata.FileMetaData.EncryptionType
import org.apache.parquet.hadoop.metadata.ParquetMetadata
import org.apache.parquet.hadoop.util.{HadoopInputFile, HadoopStreams}
import org.apache.parquet.io.SeekableInputStream

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.crypto.Footer
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.lakewarden.write.StoredPath
import org.apache.spark.sql.types.StructType

/** A file that has passed the guard: what was judged is what will be read, the same stream and footer. */
private[read] final case class OpenedFile(
    path: Path, input: HadoopInputFile, stream: SeekableInputStream, footer: ParquetMetadata)

/** Reads the footer of a file that is open: what it says of the row groups of one split.
  *
  * A row group belongs to the split that its middle lies in. One that claims to lie outside of the file belongs to
  * the first or the last one, so that none is left out.
  *
  * @param stream
  *   the footer is read from
  */
private[read] final class FooterReader(
    input: HadoopInputFile, stream: SeekableInputStream, conf: Configuration, start: Long, length: Long) {

  /** As a reader without keys reads it. */
  def read(): ParquetMetadata =
    ParquetFileReader.readFooter(input, options.withRange(from, until).build(), stream)

  def read(keys: FileDecryptionProperties): ParquetMetadata =
    ParquetFileReader.readFooter(input, options.withRange(from, until).withDecryption(keys).build(), stream)

  /** With the row groups of the whole file. */
  def whole(keys: FileDecryptionProperties): ParquetMetadata =
    ParquetFileReader.readFooter(input, options.withDecryption(keys).build(), stream)

  /** Whether the split is the whole file. */
  def isWhole: Boolean = from == Long.MinValue && until == Long.MaxValue

  private def from: Long = if (start == 0) Long.MinValue else start
  private def until: Long = if (start + length >= input.getLength) Long.MaxValue else start + length
  private def options = HadoopReadOptions.builder(conf, input.getPath)
}

/** Opens the Parquet files of one scan, on an executor.
  *
  * The order is fixed: the path is checked, then the data keys opened, then the file, its bytes checked against their
  * digest where that is asked for, its footer against its own where that is known (`FooterStream`) and against what the
  * epoch of the file says (`FileEncryption`). Nothing of a file is used before that.
  *
  * @param wanted
  *   the columns that are read, with ids
  * @param masked
  *   ids of those that are not read but shown as NULL
  */
private[read] final class GuardedFiles(gate: FileGate, wanted: StructType, masked: Set[Int]) {
  private val read = FieldIds.without(wanted, masked)

  /** Throws what `errors` makes of a file that is missing, damaged, or not what its epoch says. */
  def open(split: FileSplit, conf: Configuration, errors: ReadErrors): OpenedFile = {
    val location = gate.location(split.file)
    val encryption = encryptionOf(split.file, errors)
    val (input, stream) = opened(location, split.file, conf, errors)
    try OpenedFile(input.getPath, input, stream, judged(encryption, input, stream, split, conf, errors))
    catch {
      case failure: Throwable =>
        stream.close()
        throw failure
    }
  }

  /** The footer of an open file. */
  private def judged(
      encryption: Option[FileEncryption], input: HadoopInputFile, stream: SeekableInputStream, split: FileSplit,
      conf: Configuration, errors: ReadErrors)
      : ParquetMetadata = {
    val source = FooterStream.of(split.file, stream, errors)
    val footers = new FooterReader(input, source, conf, split.start, split.length)
    try encryption.fold(plaintext(footers.read(), errors))(_.read(footers, split.file.records))
    catch {
      case known: LakewardenException => throw known
      case NonFatal(failure) =>
        throw mistaken(source, input, split.file, footers.read(), errors).getOrElse(failure)
    }
  }

  /** How the file is encrypted, with its keys; none for plaintext. */
  private def encryptionOf(file: PlannedFile, errors: ReadErrors): Option[FileEncryption] =
    gate.keys(file, errors).map { keys =>
      val own = keys.columns.map(groups => (for ((label, dek) <- groups; id <- label.fieldIds) yield id -> dek).toMap)
      new FileEncryption(keys.algorithm, keys.footer, keys.whole, own, keys.file.aadPrefix, read, masked, errors)
    }

  private def opened(
      location: Location, file: PlannedFile, conf: Configuration, errors: ReadErrors)
      : (HadoopInputFile, SeekableInputStream) = {
    val path = StoredPath.of(location.canonical, conf)
    val input = HadoopInputFile.fromStatus(new FileStatus(file.size, false, 1, 0, 0, path), conf)
    val stream =
      if (location.isLocal) new ChannelStream(gate.openLocal(location, file, errors))
      else HadoopStreams.wrap(StoredPath.fileSystem(path, conf).open(path))
    (input, gate.digests.verified[SeekableInputStream](file, stream, errors)(new ChannelStream(_)))
  }

  private def plaintext(footer: ParquetMetadata, errors: ReadErrors): ParquetMetadata = {
    if (footer.getFileMetaData.getEncryptionType != EncryptionType.UNENCRYPTED) throw encrypted(errors)
    footer
  }

  /** Says of a file that could not be opened whether it is in plaintext where it should not be, or encrypted.
    *
    * @param footer
    *   as a reader without keys reads it
    */
  private def mistaken(
      stream: SeekableInputStream, input: HadoopInputFile, file: PlannedFile, footer: => ParquetMetadata,
      errors: ReadErrors)
      : Option[LakewardenException] = {
    val magic = new Array[Byte](4)
    try {
      stream.seek(math.max(0, input.getLength - magic.length))
      stream.readFully(magic)
    } catch { case _: IOException => return None }
    (new String(magic, US_ASCII), file.footer) match {
      case ("PAR1", Some(kind)) if kind == Footer.Encrypted || isPlaintext(footer) =>
        Some(errors.refused("The file is in plaintext, but the table requires encryption.", "plaintext-file"))
      case ("PARE", None) => Some(encrypted(errors))
      case _              => None
    }
  }

  private def isPlaintext(footer: => ParquetMetadata): Boolean =
    try footer.getFileMetaData.getEncryptionType == EncryptionType.UNENCRYPTED
    catch { case NonFatal(_) => false }

  private def encrypted(errors: ReadErrors): LakewardenException =
    errors.damaged("The file is encrypted, but the table lists it as plaintext.", "encrypted-file")
}
