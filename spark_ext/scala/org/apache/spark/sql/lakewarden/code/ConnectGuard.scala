package org.apache.spark.sql.lakewarden.code

import java.util.concurrent.atomic.AtomicReference

import org.sparkproject.connect.protobuf.Message

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connect.service.SparkConnectService
import org.apache.spark.sql.lakewarden.catalog.LaunchedCatalog

/** In a shared engine, code and paths in requests of Spark Connect take the permission `engine:code`. */
final class ConnectGuard {

  /** Those of the engine, once a session is known. */
  private val grants = new AtomicReference[CodeGrants]

  /** Refuses a request with code, paths or settings in it, of a user without the permission. */
  def check(request: Message): Unit = ConnectRules.finding(request).foreach { what =>
    val asking = session(request)
    grants.compareAndSet(null, new CodeGrants(LaunchedCatalog.guard(asking).engine))
    grants.get.require(asking, what)
  }

  /** The session that a request names; its token tells whose it is. */
  private def session(request: Message): SparkSession = {
    val asking = Asking.of(request)
    SparkConnectService.getOrCreateIsolatedSession(asking.user, asking.session, None).session
  }
}
