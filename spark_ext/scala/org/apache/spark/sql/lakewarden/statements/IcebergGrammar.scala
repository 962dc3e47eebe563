package org.apache.spark.sql.lakewarden.statements

import java.util.Locale
import java.util.concurrent.TimeUnit

import scala.util.parsing.combinator.Parsers

import org.apache.spark.sql.connector.catalog.TableChange
import org.apache.spark.sql.execution._
import org.apache.spark.sql.lakewarden.catalog._

/** The beginning of one of Iceberg's statements.
  *
  * @param explained
  *   how `EXPLAIN` stands before it, if it does
  * @param table
  *   the name of the table, in parts
  * @param command
  *   the words behind it that make it one of these statements
  */
final case class StatementHead(explained: Option[ExplainMode], table: Seq[String], command: String)

/** The statements that Iceberg adds to Spark's SQL.
  *
  * Source: Apache Iceberg's `IcebergSqlExtensions.g4` and `IcebergSqlExtensionsAstBuilder`.
  */
object IcebergGrammar extends Parsers {
  override type Elem = SqlToken

  /** A statement up to the words that tell it from Spark's own, which are read again behind it. */
  lazy val head: Parser[StatementHead] =
    opt(explain) ~ (words("ALTER TABLE") ~> name) ~ guard(command) ^^ { case mode ~ table ~ command =>
      StatementHead(mode, table, command)
    }

  /** What stands behind the table's name. */
  lazy val body: Parser[Seq[TableChange]] =
    phrase((partitioning | writing | identifiers | setRef | dropRef) <~ rep(symbol(";")))

  private lazy val explain: Parser[ExplainMode] = word("EXPLAIN") ~> opt(modes).map(_.getOrElse(SimpleMode))
  private lazy val modes: Parser[ExplainMode] =
    word("EXTENDED") ^^^ ExtendedMode | word("FORMATTED") ^^^ FormattedMode | word("CODEGEN") ^^^ CodegenMode |
      word("COST") ^^^ CostMode

  private lazy val command: Parser[String] = Seq(
    "ADD PARTITION FIELD", "DROP PARTITION FIELD", "REPLACE PARTITION FIELD", "WRITE", "SET IDENTIFIER FIELDS",
    "DROP IDENTIFIER FIELDS", "CREATE BRANCH", "CREATE TAG", "CREATE OR REPLACE BRANCH", "CREATE OR REPLACE TAG",
    "REPLACE BRANCH", "REPLACE TAG", "DROP BRANCH", "DROP TAG").map(words).reduce(_ | _)

  // Partition fields

  private lazy val partitioning: Parser[Seq[TableChange]] =
    words("ADD PARTITION FIELD") ~> term ~ named ^^ { case term ~ name => Seq(AddPartitionField(term, name)) } |
      words("DROP PARTITION FIELD") ~> term ^^ (term => Seq(RemovePartitionField(term))) |
      (words("REPLACE PARTITION FIELD") ~> term <~ word("WITH")) ~ term ~ named ^^ { case old ~ term ~ name =>
        Seq(RemovePartitionField(old), AddPartitionField(term, name))
      }

  private lazy val named: Parser[Option[String]] = opt(word("AS") ~> identifier)

  private lazy val term: Parser[Term] = applied | name ^^ (Term(_, "identity"))

  private lazy val applied: Parser[Term] =
    (identifier <~ symbol("(")) ~ (rep1sep(argument, symbol(",")) <~ symbol(")")) >> { case function ~ arguments =>
      termOf(function.toLowerCase(Locale.ROOT), arguments).fold[Parser[Term]](
        err(s"unknown transform $function, or other arguments than it takes"))(success)
    }

  private lazy val argument: Parser[Either[Int, Seq[String]]] = width ^^ (Left(_)) | name ^^ (Right(_))

  private def termOf(function: String, arguments: Seq[Either[Int, Seq[String]]]): Option[Term] =
    (function, arguments) match {
      case ("bucket" | "truncate", Seq(Left(width), Right(column))) => Some(Term(column, s"$function[$width]"))
      case ("bucket" | "truncate", Seq(Right(column), Left(width))) => Some(Term(column, s"$function[$width]"))
      case ("identity", Seq(Right(column)))                         => Some(Term(column, "identity"))
      case ("year" | "years", Seq(Right(column)))                   => Some(Term(column, "year"))
      case ("month" | "months", Seq(Right(column)))                 => Some(Term(column, "month"))
      case ("day" | "days" | "date", Seq(Right(column)))            => Some(Term(column, "day"))
      case ("hour" | "hours" | "date_hour", Seq(Right(column)))     => Some(Term(column, "hour"))
      case _                                                        => None
    }

  // Order and distribution of writes

  private lazy val writing: Parser[Seq[TableChange]] = word("WRITE") ~> rep(clause) >> { clauses =>
    val (distributed, orders) = (clauses.count(_.isEmpty), clauses.flatten)
    if (distributed > 1) err("repeated DISTRIBUTED BY")
    else if (orders.size > 1) err("repeated ORDERED BY")
    else if (clauses.isEmpty) failure("missing DISTRIBUTED BY, ORDERED BY or UNORDERED")
    else {
      val mode = if (distributed > 0) Some("hash") else orders.head.distribution
      val change = SetSortOrder(orders.flatMap(_.fields))
      success(change +: mode.map(TableChange.setProperty("write.distribution-mode", _)).toSeq)
    }
  }

  /** None is `DISTRIBUTED BY PARTITION`. */
  private lazy val clause: Parser[Option[WriteOrder]] =
    words("DISTRIBUTED BY PARTITION") ^^^ None |
      word("UNORDERED") ^^^ Some(WriteOrder(Some("none"), Nil)) |
      words("LOCALLY ORDERED BY") ~> order ^^ (fields => Some(WriteOrder(None, fields))) |
      words("ORDERED BY") ~> order ^^ (fields => Some(WriteOrder(Some("range"), fields)))

  private final case class WriteOrder(distribution: Option[String], fields: Seq[SortTerm])

  /** The argument `sort_order` of a rewrite: fields, or the columns of a z-order. */
  lazy val sortOrder: Parser[Either[Seq[SortTerm], Seq[Seq[String]]]] = phrase(
    (word("zorder") ~> symbol("(") ~> rep1sep(name, symbol(",")) <~ symbol(")")) ^^ (Right(_)) | order ^^ (Left(_)))

  private lazy val order: Parser[Seq[SortTerm]] =
    symbol("(") ~> rep1sep(sortTerm, symbol(",")) <~ symbol(")") | rep1sep(sortTerm, symbol(","))

  private lazy val sortTerm: Parser[SortTerm] = term ~ direction ~ opt(nulls) ^^ { case term ~ ascending ~ first =>
    SortTerm(term, ascending, first.getOrElse(ascending))
  }

  private lazy val direction: Parser[Boolean] = word("DESC") ^^^ false | opt(word("ASC")) ^^^ true
  private lazy val nulls: Parser[Boolean] = word("NULLS") ~> (word("FIRST") ^^^ true | word("LAST") ^^^ false)

  // Identifier fields

  private lazy val identifiers: Parser[Seq[TableChange]] =
    (words("SET IDENTIFIER FIELDS") ^^^ "set-identifier-fields" |
      words("DROP IDENTIFIER FIELDS") ^^^ "drop-identifier-fields") ~ rep1sep(name, symbol(",")) ^^ {
      case action ~ columns => Seq(IdentifierFields(action, columns))
    }

  // Branches and tags

  private lazy val setRef: Parser[Seq[TableChange]] = mode >> { replaces =>
    word("BRANCH") ~> ref("branch", replaces) ~ asOf ~ retain ~ retention ^^ { case change ~ version ~ age ~ kept =>
      Seq(change.copy(numbers = version ++ age ++ kept))
    } | word("TAG") ~> ref("tag", replaces) ~ asOf ~ retain ^^ { case change ~ version ~ age =>
      Seq(change.copy(numbers = version ++ age))
    }
  }

  private lazy val mode: Parser[String] =
    words("CREATE OR REPLACE") ^^^ "create-or-replace" | word("REPLACE") ^^^ "replace" | word("CREATE") ^^^ "create"

  private def ref(kind: String, mode: String): Parser[SetRef] = {
    val absent = if (mode == "create") opt(words("IF NOT EXISTS")) else success(None)
    absent ~ identifier ^^ { case absent ~ name =>
      SetRef(kind, name, if (absent.isEmpty) mode else "create-if-absent", Map.empty)
    }
  }

  private lazy val asOf: Parser[Map[String, Long]] = number("snapshot-id", words("AS OF VERSION") ~> long)
  private lazy val retain: Parser[Map[String, Long]] = number("max-ref-age-ms", word("RETAIN") ~> age)

  private lazy val retention: Parser[Map[String, Long]] = opt(words("WITH SNAPSHOT RETENTION") ~> kept) ^^ (_.getOrElse(Map.empty))
  private lazy val kept: Parser[Map[String, Long]] =
    (long <~ word("SNAPSHOTS")) ~ number("max-snapshot-age-ms", age) ^^ { case count ~ age =>
      age + ("min-snapshots-to-keep" -> count)
    } | age ^^ (age => Map("max-snapshot-age-ms" -> age))

  private def number(name: String, value: Parser[Long]): Parser[Map[String, Long]] =
    opt(value) ^^ (_.map(name -> _).toMap)

  private lazy val age: Parser[Long] = long ~ unit ^? (
    { case count ~ unit if unit.toMillis(count) < Long.MaxValue => unit.toMillis(count) },
    _ => "the time is too long")
  private lazy val unit: Parser[TimeUnit] =
    word("DAYS") ^^^ TimeUnit.DAYS | word("HOURS") ^^^ TimeUnit.HOURS | word("MINUTES") ^^^ TimeUnit.MINUTES

  private lazy val dropRef: Parser[Seq[TableChange]] =
    word("DROP") ~> kind ~ opt(words("IF EXISTS")) ~ identifier ^^ { case kind ~ ifExists ~ name =>
      Seq(DropRef(kind, name, ifExists.nonEmpty))
    }
  private lazy val kind: Parser[String] = word("BRANCH") ^^^ "branch" | word("TAG") ^^^ "tag"

  // Names and numbers

  private lazy val name: Parser[Seq[String]] = rep1sep(identifier, symbol("."))

  private lazy val identifier: Parser[String] =
    accept("a name", { case Word(text, _) => text; case QuotedName(text, _) => text })

  private lazy val long: Parser[Long] =
    accept("a number above 0", { case Digits(text, _) if text.toLongOption.exists(_ > 0) => text.toLong })
  private lazy val width: Parser[Int] =
    accept("a number above 0", { case Digits(text, _) if text.toIntOption.exists(_ > 0) => text.toInt })

  private def words(phrase: String): Parser[String] =
    phrase.split(' ').map(word).reduce(_ ~> _) ^^^ phrase

  private def word(wanted: String): Parser[String] =
    accept(wanted, { case Word(text, _) if text.equalsIgnoreCase(wanted) => wanted })

  private def symbol(wanted: String): Parser[String] = accept(wanted, { case Other(`wanted`, _) => wanted })
}
