package org.apache.spark.sql.lakewarden.restrictions

import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.ColumnVector

/** The columns of one file as a user sees them: exactly what is wanted, each part behind its mask.
  *
  * @param actions
  *   by field id
  * @param salt
  *   of the query
  * @param lengths
  *   by id how many bytes each value of the type `fixed` has
  */
private[lakewarden] final class Masks(actions: Map[Int, MaskAction], salt: Array[Byte], lengths: Map[Int, Int]) {

  /** A column as it is shown.
    *
    * @param field
    *   what is wanted of it, with ids
    * @param read
    *   what was read of it; structs can have more fields behind those that are wanted
    */
  def shown(field: StructField, read: ColumnVector): ColumnVector = {
    val nested = FieldIds.nested(field)
    part(Some(FieldIds.of(field)), field.dataType, "", nested, read)
  }

  private def part(id: Option[Int], kind: DataType, at: String, ids: Map[String, Int], read: => ColumnVector): ColumnVector =
    id.flatMap(each => actions.get(each).map(each -> _)) match {
      case Some((of, action)) => Masks.of(action, FieldIds.stripType(kind), read, salt, lengths.getOrElse(of, 0))
      case None               => inside(kind, at, ids, read)
    }

  private def inside(kind: DataType, at: String, ids: Map[String, Int], read: ColumnVector): ColumnVector = {
    def named(name: String, inner: DataType)(of: ColumnVector): ColumnVector = {
      val path = if (at.isEmpty) name else s"$at.$name"
      part(ids.get(path), inner, path, ids, of)
    }
    val shown = FieldIds.stripType(kind)
    kind match {
      case struct: StructType =>
        new StructView(shown.asInstanceOf[StructType], read, (each, of) => this.shown(struct(each), of))
      case ArrayType(element, _)  => new ListView(shown, read, named("element", element))
      case MapType(key, value, _) => new MapView(shown, read, named("key", key), named("value", value))
      case _                      => read
    }
  }
}

private[restrictions] object Masks {
  import MaskAction._

  /** Values behind a mask that takes them.
    *
    * @param length
    *   how many bytes the fixed value has, where it is bytes
    */
  def of(
      action: MaskAction, kind: DataType, values: => ColumnVector, salt: Array[Byte], length: Int): ColumnVector =
    action match {
      case MaskAlphanum     => new MaskedTexts(values, TextMasks.all)
      case ShowFirst4       => new MaskedTexts(values, TextMasks.butFirst)
      case ShowLast4        => new MaskedTexts(values, TextMasks.butLast)
      case TruncateToYear   => moments(kind, values, MomentMasks.year)
      case TruncateToMonth  => moments(kind, values, MomentMasks.month)
      case Sha256Global     => hashed(kind, values, new Hashes(Array.emptyByteArray))
      case Sha256QueryLocal => hashed(kind, values, new Hashes(salt))
      case HiveMask         => hive(kind, values, HiveMasks.Mask, _ => HiveMasks.Day)
      case HiveShowFirst4   => hive(kind, values, HiveMasks.First4, _ => HiveMasks.Day)
      case HiveShowLast4    => hive(kind, values, HiveMasks.Last4, _ => HiveMasks.Day)
      case HiveDateShowYear => hive(kind, values, HiveMasks.Year, MomentMasks.year)
      case MaskToFixedValue => new FixedVector(kind, values, length)
      case ReplaceWithNull  => new NullVector(kind)
    }

  private def moments(kind: DataType, values: ColumnVector, first: Int => Int): ColumnVector = kind match {
    case DateType => new MaskedInts(kind, values, first)
    case _        => new MaskedLongs(kind, values, MomentMasks.micros(_)(first))
  }

  private def hashed(kind: DataType, values: ColumnVector, hashes: Hashes): ColumnVector = kind match {
    case IntegerType => new MaskedInts(kind, values, hashes.int)
    case LongType    => new MaskedLongs(kind, values, hashes.long)
    case BinaryType  => new MaskedBytes(values, hashes.bytes)
    case _           => new MaskedTexts(values, hashes.text)
  }

  private def hive(kind: DataType, values: ColumnVector, masks: HiveMasks, day: Int => Int): ColumnVector = kind match {
    case IntegerType => new MaskedInts(kind, values, masks.int)
    case LongType    => new MaskedLongs(kind, values, masks.long)
    case DateType    => new MaskedInts(kind, values, day)
    case _           => new MaskedTexts(values, masks.text)
  }
}
