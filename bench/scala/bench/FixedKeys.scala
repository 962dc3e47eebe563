package bench

import org.apache.parquet.crypto.keytools.LocalWrapKmsClient

/**
 * Master keys for the encryption that Parquet brings along, so that it can be measured beside Lakewarden's.
 *
 * It answers every key id with the same 32 bytes, from memory: nothing that a benchmark of reading and writing
 * would have to wait for, and nothing that protects anything.
 */
class FixedKeys extends LocalWrapKmsClient {

  override protected def initializeInternal(): Unit = ()

  override protected def getMasterKeyFromServer(masterKeyIdentifier: String): Array[Byte] =
    Array.tabulate(32)(_.toByte)
}
