package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.connect.lakewarden.ConnectServer
import org.apache.spark.sql.hive.thriftserver.HiveThriftServer2

/** Servers in this driver by which people of other processes have sessions. */
object ServedClients {
  def any: Boolean = connect || thrift

  def connect: Boolean = ConnectServer.isRunning

  /** Whether a Thrift server was started in this driver. Spark does not tell whether it has stopped. */
  def thrift: Boolean =
    try HiveThriftServer2.listener != null
    catch { case _: NoClassDefFoundError => false } // Spark can be built without it
}
