package org.apache.spark.sql.lakewarden.catalog

import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.connector.catalog.TableChange

/** A change of a table that Iceberg's statements make and Spark's do not. */
sealed trait IcebergChange extends TableChange {

  /** The change as the catalog takes it (docs/rest-api.md, "alter"). */
  def toJson: ObjectNode

  /** The change with the names of columns as the table spells them. */
  def named(spelled: Seq[String] => Seq[String]): IcebergChange
}

/** A column, and a transform as Iceberg's metadata spells it: `identity`, `bucket[16]`. */
final case class Term(column: Seq[String], transform: String) {
  def named(spelled: Seq[String] => Seq[String]): Term = copy(column = spelled(column))
}

/** One field of a sort order. */
final case class SortTerm(term: Term, ascending: Boolean, nullsFirst: Boolean)

/** `ADD PARTITION FIELD`. */
final case class AddPartitionField(term: Term, name: Option[String]) extends IcebergChange {
  override def toJson: ObjectNode = {
    val node = IcebergChange.of("add-partition-field", term)
    name.foreach(node.put("name", _))
    node
  }
  override def named(spelled: Seq[String] => Seq[String]): IcebergChange = copy(term = term.named(spelled))
}

/** `DROP PARTITION FIELD`. */
final case class RemovePartitionField(term: Term) extends IcebergChange {
  override def toJson: ObjectNode = IcebergChange.of("remove-partition-field", term)
  override def named(spelled: Seq[String] => Seq[String]): IcebergChange = copy(term = term.named(spelled))
}

/** `WRITE ORDERED BY`; none: `WRITE UNORDERED`. */
final case class SetSortOrder(fields: Seq[SortTerm]) extends IcebergChange {
  override def toJson: ObjectNode = {
    val node = IcebergChange.of("set-sort-order")
    val list = node.putArray("fields")
    fields.foreach { each =>
      val field = IcebergChange.put(list.addObject(), each.term)
      field.put("direction", if (each.ascending) "asc" else "desc")
      field.put("null-order", if (each.nullsFirst) "nulls-first" else "nulls-last")
    }
    node
  }
  override def named(spelled: Seq[String] => Seq[String]): IcebergChange =
    SetSortOrder(fields.map(each => each.copy(term = each.term.named(spelled))))
}

/** `SET` or `DROP IDENTIFIER FIELDS`. */
final case class IdentifierFields(action: String, columns: Seq[Seq[String]]) extends IcebergChange {
  override def toJson: ObjectNode = {
    val node = IcebergChange.of(action)
    val paths = node.putArray("paths")
    columns.foreach { column =>
      val path = paths.addArray()
      column.foreach(path.add(_))
    }
    node
  }
  override def named(spelled: Seq[String] => Seq[String]): IcebergChange = copy(columns = columns.map(spelled))
}

/** `CREATE` or `REPLACE BRANCH` or `TAG`.
  *
  * @param kind
  *   `branch` or `tag`
  * @param mode
  *   what to do if it exists, or does not, in the catalog's words
  * @param numbers
  *   the snapshot and the retention, by the catalog's names
  */
final case class SetRef(kind: String, name: String, mode: String, numbers: Map[String, Long]) extends IcebergChange {
  override def toJson: ObjectNode = {
    val node = IcebergChange.of(s"set-$kind").put("name", name).put("mode", mode)
    numbers.foreach { case (each, value) => node.put(each, value) }
    node
  }
  override def named(spelled: Seq[String] => Seq[String]): IcebergChange = this
}

/** `DROP BRANCH` or `TAG`. */
final case class DropRef(kind: String, name: String, ifExists: Boolean) extends IcebergChange {
  override def toJson: ObjectNode = IcebergChange.of(s"drop-$kind").put("name", name).put("if-exists", ifExists)
  override def named(spelled: Seq[String] => Seq[String]): IcebergChange = this
}

private object IcebergChange {
  def of(action: String): ObjectNode = JsonNodeFactory.instance.objectNode.put("action", action)
  def of(action: String, term: Term): ObjectNode = put(of(action), term)

  def put(node: ObjectNode, term: Term): ObjectNode = {
    val path = node.putArray("path")
    term.column.foreach(path.add(_))
    node.put("transform", term.transform)
  }
}
