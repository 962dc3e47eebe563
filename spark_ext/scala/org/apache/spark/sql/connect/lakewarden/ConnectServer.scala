package org.apache.spark.sql.connect.lakewarden

import org.apache.spark.sql.connect.service.SparkConnectService

/** Whether this driver serves Spark Connect; Spark tells it in this package only. */
object ConnectServer {
  def isRunning: Boolean = SparkConnectService.started
}
