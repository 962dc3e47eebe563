package org.apache.spark.sql.lakewarden.code

import org.apache.spark.sql.internal.SQLConf

/** By which settings the text of a stored view is read.
  *
  * Spark reads it by the settings that are stored with it and Spark's defaults alone, which are those of the user who made
  * the view. In a shared engine, that would be a way around its own: variables of the driver's environment are
  * substituted by default. So a view brings only what a session could set itself.
  */
object ViewSettings {
  def of(stored: Map[String, String], session: SQLConf): Map[String, String] =
    stored.filter { case (key, _) => SettingRules.isChangeable(key) && session.isModifiable(key) } ++
      session.getAllConfs.filter { case (key, _) => !SettingRules.isChangeable(key) && session.isModifiable(key) } ++
      SettingRules.Required
}
