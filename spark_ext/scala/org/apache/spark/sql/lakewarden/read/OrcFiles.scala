package org.apache.spark.sql.lakewarden.read

import java.nio.channels.SeekableByteChannel

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.FSDataInputStream
import org.apache.orc.{OrcFile, Reader}

import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.lakewarden.write.StoredPath
import org.apache.spark.sql.types.StructType

/** Opens the ORC files of one scan, on an executor.
  *
  * The order is fixed: the path is checked, then the data keys opened, then the file, its bytes checked against their
  * digest where that is asked for, and its keys against what the epoch of the file says (`OrcEncryption`). ORC reads
  * from the one stream that was opened, or from the copy that was verified, whatever lies under the path by then.
  *
  * @param wanted
  *   the columns that are read, with ids
  * @param masked
  *   ids of those that are shown through their masks
  */
private[read] final class OrcFiles(gate: FileGate, wanted: StructType, masked: Set[Int]) {
  private val ids = wanted.map(FieldIds.of).toSet

  /** Throws what `errors` makes of a file that is missing, damaged, or not what its epoch says. */
  def open(split: FileSplit, conf: Configuration, errors: ReadErrors): Reader = {
    val location = gate.location(split.file)
    val encryption = gate.keys(split.file, errors).map(new OrcEncryption(_, masked, ids, errors))
    val path = StoredPath.of(location.canonical, conf)
    val storage = StoredPath.fileSystem(path, conf)
    val opened =
      if (location.isLocal) streamOf(gate.openLocal(location, split.file, errors))
      else storage.open(path)
    val stream = gate.digests.verified(split.file, opened, errors)(streamOf)
    try {
      val options = OrcFile.readerOptions(conf)
        .filesystem(new OneOpenFile(storage, stream, split.file.size))
        .maxLength(split.file.size)
        .useUTCTimestamp(true)
      encryption.foreach(each => options.setKeyProvider(each.provider))
      val reader = OrcFile.createReader(path, options)
      encryption.fold(requirePlaintext(reader, errors))(_.judge(reader, split.file.records))
      // Days and instants are taken as they are: Iceberg's are in the calendar that the file may say it has not.
      options.convertToProlepticGregorian(reader.writerUsedProlepticGregorian)
      reader
    } catch {
      case failure: Throwable =>
        stream.close()
        throw failure
    }
  }

  private def streamOf(channel: SeekableByteChannel) = new FSDataInputStream(new ChannelInput(channel))

  private def requirePlaintext(file: Reader, errors: ReadErrors): Unit =
    if (file.getEncryptionVariants.nonEmpty)
      throw errors.damaged("The file is encrypted, but the table lists it as plaintext.", "encrypted-file")
}
