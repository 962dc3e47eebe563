package org.apache.spark.sql.lakewarden.code

import org.apache.spark.sql.lakewarden.Resource

/** What is known to run no code of a user and to open nothing by path: the lists below
  * `resources/lakewarden/harmless`. What is on no list is refused to users without `engine:code`.
  */
object Harmless {

  /** Classes of logical plans, commands among them. */
  lazy val plans: Set[String] = read("plans")

  /** Classes of expressions. */
  lazy val expressions: Set[String] = read("expressions")

  /** Names of built-in functions. */
  lazy val functions: Set[String] = read("functions")

  /** Settings that a session can change. */
  lazy val settings: Set[String] = read("settings")

  /** Settings that a session can read. */
  lazy val readable: Set[String] = settings ++ read("readable-settings")

  /** Full names of the messages of Spark Connect. */
  lazy val connectMessages: Set[String] = read("connect-messages")

  private def read(name: String): Set[String] = Resource.lines(s"/lakewarden/harmless/$name.txt").toSet
}
