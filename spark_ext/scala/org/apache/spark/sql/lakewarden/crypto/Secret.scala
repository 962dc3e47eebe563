package org.apache.spark.sql.lakewarden.crypto

/** Key bytes. They travel inside the cluster and are never printed. */
final class Secret(private val bytes: Array[Byte]) extends Serializable {

  /** The bytes themselves; not to be changed or kept by the caller. */
  def reveal: Array[Byte] = bytes

  override def toString: String = "Secret(***)"
}
