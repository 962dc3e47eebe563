package org.apache.spark.sql.lakewarden

import java.nio.charset.StandardCharsets.UTF_8

/** Lists in the jar. */
object Resource {

  /** The lines of a text, without comments and empty lines. */
  def lines(path: String): Seq[String] = {
    val stream = getClass.getResourceAsStream(path)
    val text =
      try new String(stream.readAllBytes(), UTF_8)
      finally stream.close()
    text.linesIterator.filterNot(_.startsWith("#")).filter(_.nonEmpty).toSeq
  }
}
