package org.apache.spark.sql.lakewarden.rest

import java.io.IOException
import java.nio.file.{Files, Path}
import java.security.{GeneralSecurityException, KeyStore}
import java.security.cert.CertificateFactory
import javax.net.ssl.{SSLContext, TrustManagerFactory}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.lakewarden.LakewardenException

/** The certificate authorities that the catalog's certificate is checked against. */
object Authorities {

  /** The environment variable of the driver that names a PEM file. */
  val FileVariable = "LAKEWARDEN_CA_FILE"

  /** How to agree on TLS by the authorities in that file; none by those of the JVM. */
  def of(environment: Map[String, String]): Option[SSLContext] =
    environment.get(FileVariable).filter(_.nonEmpty).map { file =>
      try trusting(Path.of(file))
      catch {
        case error @ (_: IOException | _: GeneralSecurityException) =>
          throw new LakewardenException(
            "CatalogNotTrusted", s"The certificate authorities in $file cannot be read.", Some("ca-file"),
            Some(s"Name a PEM file with $FileVariable, or unset it."), error)
      }
    }

  private def trusting(file: Path): SSLContext = {
    val store = KeyStore.getInstance(KeyStore.getDefaultType)
    store.load(null, null)
    val content = Files.newInputStream(file)
    val found =
      try CertificateFactory.getInstance("X.509").generateCertificates(content).asScala.toSeq
      finally content.close()
    if (found.isEmpty) throw new IOException("no certificate")
    found.zipWithIndex.foreach { case (each, number) => store.setCertificateEntry(number.toString, each) }
    val managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm)
    managers.init(store)
    val context = SSLContext.getInstance("TLS")
    context.init(null, managers.getTrustManagers, null)
    context
  }
}
