package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.types.{LongType, StringType, TimestampType}

/** Iceberg's procedures on snapshots, with its names, parameters and columns. */
private[catalog] object SnapshotProcedures {
  private val Current = Seq(Shown("previous-snapshot-id", nullable = true), Shown("current-snapshot-id"))
  private val Picked = Seq(Shown("source-snapshot-id"), Shown("current-snapshot-id"))
  private val Snapshot = Argument("snapshot_id", LongType, "The id of the snapshot.", required = true)

  val All: Seq[CatalogOperation] = Seq(
    CatalogOperation(
      "rollback_to_snapshot", "Take the branch main back to an ancestor of its head.", at("rollback"), None, Current,
      Seq(Snapshot)),
    CatalogOperation(
      "rollback_to_timestamp", "Take the branch main back to its last snapshot before a time.", at("rollback"), None,
      Current, Seq(Argument("timestamp", TimestampType, "The time.", required = true))),
    CatalogOperation(
      "set_current_snapshot", "Move the branch main to any snapshot of the table.", at("set-current"), None, Current,
      Seq(Snapshot.copy(required = false), Argument("ref", StringType, "A branch or tag, in place of an id."))),
    CatalogOperation(
      "cherrypick_snapshot", "Apply a snapshot to the branch main again.", at("cherry-pick"), None, Picked,
      Seq(Snapshot)),
    CatalogOperation(
      "publish_changes", "Apply the snapshot that is staged under an id to the branch main.", at("cherry-pick"), None,
      Picked, Seq(Argument("wap_id", StringType, "The spark.wap.id of the write.", required = true))),
    CatalogOperation(
      "fast_forward", "Move a branch to the snapshot of another one, which descends from its head.",
      at("fast-forward"), None,
      Seq(Shown("branch-updated", StringType), Shown("previous-ref", nullable = true), Shown("updated-ref")),
      Seq(
        Argument("branch", StringType, "The branch to move.", required = true),
        Argument("to", StringType, "The branch or tag to move it to.", required = true))),
    CatalogOperation(
      "ancestors_of", "List a snapshot and its ancestors, newest first.", at("ancestors"), Some("ancestors"),
      Seq(Shown("snapshot-id", nullable = true), Shown("timestamp", nullable = true)),
      Seq(Snapshot.copy(required = false, about = "The id of the snapshot; the current one by default."))))

  private def at(operation: String): Seq[String] = Seq("snapshots", operation)
}
