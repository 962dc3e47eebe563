package org.apache.spark.sql.lakewarden.read

import org.apache.arrow.vector.FieldVector
import org.apache.arrow.vector.dictionary.DictionaryProvider

/** The paths of the files of one batch of a plan. What is checked later is the whole path, so a directory and a name
  * have to give one path in one way: a name is one segment, and no directory is there twice.
  *
  * Source: docs/plan-format.md, "Files".
  */
private[read] final class PlannedPaths private (directories: Array[String], indexes: FieldVector, names: FieldVector)
    extends (Int => String) {

  /** The path of the file in a row; throws what `PlanStream` turns into a refusal of the plan. */
  def apply(row: Int): String = {
    val name = names.getObject(row).toString
    // Null would be taken for the index 0.
    require(!indexes.isNull(row), "a file without a directory")
    require(!PlannedPaths.NoNames(name) && name.indexOf('/') < 0, "a name that is not one segment of a path")
    s"${directories(indexes.getObject(row).asInstanceOf[Int])}/$name"
  }
}

private[read] object PlannedPaths {
  private val NoNames = Set("", ".", "..")

  /** @param directories
    *   by row the index of its directory in a dictionary
    * @param names
    *   by row the name in it
    */
  def of(directories: FieldVector, names: FieldVector, dictionaries: DictionaryProvider): PlannedPaths = {
    val known = dictionaries.lookup(directories.getField.getDictionary.getId).getVector
    val texts = Array.tabulate(known.getValueCount)(known.getObject(_).toString)
    require(!texts.contains("") && texts.distinct.length == texts.length, "a directory is empty, or there twice")
    new PlannedPaths(texts, directories, names)
  }
}
