package org.apache.spark.sql.lakewarden.code

import org.apache.spark.SparkConf
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.ServedClients

/** Refuses to act as an engine beside servers whose requests nobody checks. */
object Servers {
  private val Interceptor = "lakewarden.spark.LakewardenConnectInterceptor"
  private val Setting = "spark.connect.grpc.interceptor.classes"

  /** Spark has it true, `SparkConnectServer` sets it, and PySpark sets it false where Python starts the driver. */
  private val Isolation = "spark.sql.artifact.isolation.enabled"

  /** Refuses every statement of a driver that serves Spark Connect without the interceptor or with shared
    * artifacts, or Thrift clients.
    */
  def requireChecked(launch: SparkConf): Unit = {
    if (ServedClients.connect && !launch.get(Setting, "").split(',').map(_.trim).contains(Interceptor))
      throw refused(s"A Spark Connect server runs without $Setting=$Interceptor.",
        "Add it to the launch configuration.")
    if (ServedClients.connect && !launch.getBoolean(Isolation, defaultValue = true))
      throw refused(
        s"A Spark Connect server runs with $Isolation=false, so sessions import each other's files and modules.",
        s"Add $Isolation=true to the launch configuration.")
    if (ServedClients.thrift)
      throw refused(
        "Spark's Thrift server runs in this engine, and its connections can change driver settings without a check.",
        "Start Spark without it, and use Spark Connect.")
  }

  private def refused(problem: String, hint: String): LakewardenException =
    new LakewardenException("CatalogNotTrusted", problem, Some("launch-configuration"), Some(hint))
}

/** Looks at the servers of an engine before anything else; it changes no plan. */
final class ServersRule(session: SparkSession, grants: CodeGrants) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = {
    if (grants.isNeeded) Servers.requireChecked(session.sparkContext.conf)
    plan
  }
}
