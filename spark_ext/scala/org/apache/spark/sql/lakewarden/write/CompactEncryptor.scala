package org.apache.spark.sql.lakewarden.write

import java.io.ByteArrayInputStream

import org.apache.parquet.crypto.{ColumnEncryptionProperties, FileEncryptionProperties}
import org.apache.parquet.crypto.{InternalColumnEncryptionSetup, InternalFileEncryptor}
import org.apache.parquet.format.BlockCipher
import org.apache.parquet.hadoop.metadata.ColumnPath
import shaded.parquet.org.apache.thrift.protocol.{TCompactProtocol, TProtocolUtil}
import shaded.parquet.org.apache.thrift.transport.TIOStreamTransport

/** Encrypts the parts of a file as Parquet's own encryptor does, and no bytes behind them.
  *
  * parquet-java writes a structure (the header of a page, an index, the footer) into a buffer of 100 bytes, which
  * doubles as often as it is too small, and hands over all of the buffer. A header has some 25 bytes. A reader of a
  * structure stops where it ends, so that what stands behind it is cut off before it is encrypted.
  *
  * Parquet makes the encryptors of a column in one place, with a constructor that is its own; `CompactEncryptor`
  * finds that by reflection, and nothing is written where it is another one.
  *
  * Source: Parquet Modular Encryption, "Encryption of modules"; parquet-java, `org.apache.parquet.format.Util`.
  */
private[write] final class CompactEncryptor(properties: FileEncryptionProperties)
    extends InternalFileEncryptor(properties) {

  override def getFooterEncryptor: BlockCipher.Encryptor = Option(super.getFooterEncryptor).map(compact).orNull

  override def getColumnSetup(path: ColumnPath, create: Boolean, ordinal: Int): InternalColumnEncryptionSetup = {
    val setup = super.getColumnSetup(path, create, ordinal)
    if (!setup.isEncrypted) setup
    else CompactEncryptor.setups.newInstance(
      properties.getColumnProperties(path), Int.box(ordinal), setup.getDataEncryptor,
      compact(setup.getMetaDataEncryptor))
  }

  private def compact(encryptor: BlockCipher.Encryptor): BlockCipher.Encryptor = (plain, aad) =>
    if (isStructure(aad)) encryptor.encrypt(CompactEncryptor.structure(plain), aad) else encryptor.encrypt(plain, aad)

  /** The bits of a bloom filter are none. What a part is stands behind the file's own part of its AAD. */
  private def isStructure(aad: Array[Byte]): Boolean = aad(getFileAAD.length) != CompactEncryptor.BloomFilterBits
}

private object CompactEncryptor {
  private val BloomFilterBits: Byte = 9

  /** Thrift's number for structures. */
  private val Structure: Byte = 12

  private lazy val setups = {
    val constructor = classOf[InternalColumnEncryptionSetup].getDeclaredConstructor(
      classOf[ColumnEncryptionProperties], classOf[Int], classOf[BlockCipher.Encryptor], classOf[BlockCipher.Encryptor])
    constructor.setAccessible(true)
    constructor
  }

  /** The structure of Thrift's compact protocol that the bytes begin with. */
  private def structure(bytes: Array[Byte]): Array[Byte] = {
    val input = new ByteArrayInputStream(bytes)
    TProtocolUtil.skip(new TCompactProtocol(new TIOStreamTransport(input)), Structure)
    bytes.dropRight(input.available)
  }
}
