package org.apache.spark.sql.lakewarden.code

import scala.jdk.CollectionConverters._

import org.sparkproject.connect.protobuf.Message

import org.apache.spark.sql.lakewarden.catalog.SourceName

/** Compares every message of a request of Spark Connect with what is known to be harmless. */
object ConnectRules {

  /** The first thing in a request that is not known to be harmless, if any. */
  def finding(message: Message): Option[String] = {
    val name = message.getDescriptorForType.getFullName
    if (!Harmless.connectMessages(name)) Some(s"The message $name of Spark Connect")
    else ofFields(name, message).orElse(nested(message))
  }

  private def nested(message: Message): Option[String] = message.getAllFields.values.asScala.iterator.flatMap {
    case one: Message            => Iterator(one)
    case many: java.util.List[_] => many.asScala.iterator.collect { case one: Message => one }
    case _                       => Iterator.empty
  }.map(finding).collectFirst { case Some(found) => found }

  private def ofFields(name: String, message: Message): Option[String] = name match {
    case "spark.connect.WriteOperation"                    => ofWrite(message)
    case "spark.connect.Read.DataSource"        => ofSource(message)
    case "spark.connect.Parse.OptionsEntry"     => ofParser(text(message, "key"))
    case "spark.connect.DataType.StructField"   => ofParser(text(message, "metadata"))
    case "spark.connect.DataType.Unparsed"      => ofParser(text(message, "data_type_string"))
    case "spark.connect.AddArtifactsRequest.SingleChunkArtifact" |
        "spark.connect.AddArtifactsRequest.BeginChunkedArtifact" => ofArtifact(text(message, "name"))
    case "spark.connect.ConfigRequest.Set" =>
      many(message, "pairs").collect { case pair: Message => text(pair, "key") }
        .find(!SettingRules.isChangeable(_)).map(setting)
    case "spark.connect.ConfigRequest.Unset" =>
      texts(message, "keys").find(!SettingRules.isChangeable(_)).map(setting)
    case "spark.connect.ConfigRequest.Get" | "spark.connect.ConfigRequest.GetOption" =>
      texts(message, "keys").find(!SettingRules.isReadable(_)).map(setting)
    case "spark.connect.ConfigRequest.GetWithDefault" =>
      many(message, "pairs").collect { case pair: Message => text(pair, "key") }
        .find(!SettingRules.isReadable(_)).map(setting)
    case _ => None
  }

  /** Rows go to a table of a catalog, in one of the formats that Lakewarden's tables have. */
  private def ofWrite(write: Message): Option[String] = {
    val source = text(write, "source")
    if (!has(write, "table")) Some("Writing to a path or a data source")
    else if (source.isEmpty || Formats(source)) None
    else Some(s"The data source $source")
  }

  /** A table of a catalog by its name. What the name stands for is judged in the plan (`IcebergReads`). */
  private def ofSource(source: Message): Option[String] = {
    val format = text(source, "format")
    if (format.equalsIgnoreCase(SourceName.Format) && text(source, "schema").isEmpty) None
    else Some(s"The data source $format")
  }

  private def ofParser(options: String): Option[String] =
    if (PlanRules.isPlainText(options)) None else Some("A schema or option that names a file or has a default")

  /** Rows of large local relations are sent as artifacts under the digest of their content. */
  private def ofArtifact(name: String): Option[String] =
    if (LocalRows.matches(name)) None else Some(s"The artifact $name")

  private def setting(key: String): String = s"The setting $key"
  private def field(message: Message, name: String) = message.getDescriptorForType.findFieldByName(name)
  private def has(message: Message, name: String): Boolean = message.hasField(field(message, name))
  private def text(message: Message, name: String): String = message.getField(field(message, name)).toString
  private def texts(message: Message, name: String): Seq[String] = many(message, name).map(_.toString)
  private def many(message: Message, name: String): Seq[Any] =
    message.getField(field(message, name)).asInstanceOf[java.util.List[_]].asScala.toSeq

  private val Formats = Set("iceberg", "parquet", "orc")
  private val LocalRows = "cache/[0-9a-f]{64}".r
}
