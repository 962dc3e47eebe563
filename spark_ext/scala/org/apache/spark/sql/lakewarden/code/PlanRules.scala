package org.apache.spark.sql.lakewarden.code

import java.util.{IdentityHashMap, Locale}

import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.objects.{Invoke, StaticInvoke}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.trees.TreeNode
import org.apache.spark.sql.connector.catalog.CatalogV2Util
import org.apache.spark.sql.connector.catalog.functions.BoundFunction
import org.apache.spark.sql.execution.command.{DropTableCommand, SetCommand}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.types.{DataType, NullType, ObjectType, StringType}

/** Compares every node of a plan with what is known to be harmless, before and after it is resolved.
  *
  * Nodes are found wherever they are: among children, in subqueries, in definitions of common tables and in the
  * arguments of commands.
  */
final class PlanRules(names: NameRules) {
  import PlanRules._

  /** The first thing in a plan that is not known to be harmless, if any. */
  def finding(plan: LogicalPlan): Option[String] = new Walk().of(plan)

  private final class Walk {
    private val seen = new IdentityHashMap[AnyRef, AnyRef]

    def of(value: Any): Option[String] = value match {
      case plan: LogicalPlan      => once(plan)(ofPlan(plan))
      case expression: Expression => once(expression)(ofExpression(expression))
      case values: Map[_, _]      => first(values.valuesIterator)
      case values: Iterable[_]    => first(values.iterator)
      case values: Array[_]       => first(values.iterator)
      case Some(inner)            => of(inner)
      case tuple: Product if tuple.productPrefix.startsWith("Tuple") => first(tuple.productIterator)
      case _                      => None
    }

    private def once(node: TreeNode[_])(judged: => Option[String]): Option[String] =
      if (seen.put(node, node) != null) None else judged.orElse(first(node.productIterator))

    private def first(values: Iterator[Any]): Option[String] = values.map(of).collectFirst { case Some(found) => found }
  }

  private def ofPlan(plan: LogicalPlan): Option[String] = plan match {
    case SetCommand(setting)                    => ofSetting(setting)
    case named: UnresolvedRelation              => names.ofRelation(named.multipartIdentifier)
    case table: DataSourceV2Relation            => names.ofTable(table.catalog, table.name)
    case named: UnresolvedTableValuedFunction   => names.ofFunction(named.name)
    case drop: DropTableCommand if !drop.isView => Some("Dropping a table of Spark's own catalog")
    case other if !Harmless.plans(other.getClass.getName) => Some(s"The operation ${shown(other)}")
    case other                                  => ofTarget(other)
  }

  /** What a command works on: views and functions in SQL are all that is made or changed in Spark's own catalog. */
  private def ofTarget(plan: LogicalPlan): Option[String] = {
    val ownCatalog = plan.children.exists {
      case UnresolvedIdentifier(name, _) => names.isInSessionCatalog(name)
      case target: ResolvedIdentifier    => CatalogV2Util.isSessionCatalog(target.catalog)
      case target: ResolvedNamespace     => CatalogV2Util.isSessionCatalog(target.catalog)
      case target: ResolvedTable         => CatalogV2Util.isSessionCatalog(target.catalog)
      case _                             => false
    }
    if (ownCatalog && !isInOwnCatalog(shown(plan))) Some(s"${shown(plan)} in Spark's own catalog")
    else if (InsertTargets(shown(plan))) plan.productIterator.collectFirst {
      case name: Seq[_] => name.map(_.toString)
    }.flatMap(names.ofRelation)
    else None
  }

  private def ofExpression(expression: Expression): Option[String] = expression match {
    case call: UnresolvedFunction   => names.ofFunction(call.nameParts, call.isInternal).orElse(ofParser(call))
    case call: UnresolvedGenerator  => names.ofFunction(call.name.nameParts)
    case call: StaticInvoke         => ofCall(call.staticObject, call.functionName)
    case call: Invoke => call.targetObject.dataType match {
        case ObjectType(target) => ofCall(target, call.functionName)
        case _                  => None
      }
    case named: ExpressionWithUnresolvedIdentifier if named.otherExprs.nonEmpty =>
      Some("A function that IDENTIFIER names")
    case json: JsonToStructs => ofSchema(json.schema, json.options)
    case csv: CsvToStructs   => ofSchema(csv.schema, csv.options)
    case xml: XmlToStructs   => ofSchema(xml.schema, xml.options)
    case xml: SchemaOfXml    => ofSchema(NullType, xml.options)
    case other if !Harmless.expressions(other.getClass.getName) => Some(s"The expression ${shown(other)}")
    case _                                                      => None
  }

  /** Spark rewrites many of its functions to calls of its own classes; catalogs bring functions, too. */
  private def ofCall(target: Class[_], method: String): Option[String] = {
    val own = OwnPackages.exists(target.getName.startsWith) || Boxed(target)
    if (own || classOf[BoundFunction].isAssignableFrom(target)) None
    else Some(s"A call of ${target.getName}.$method")
  }

  /** Parsers evaluate schemas and options of these functions early, before a plan is resolved. */
  private def ofParser(call: UnresolvedFunction): Option[String] =
    ParserArguments.get(call.nameParts.last.toLowerCase(Locale.ROOT)).flatMap { others =>
      call.arguments.drop(others).filterNot(isPlain).headOption
        .map(_ => s"A schema or option of the function ${call.nameParts.last} that names a file, has a default or is computed")
    }

  /** Literals, maps of them and schemas of values; what a computed text comes to is not known yet. */
  private def isPlain(argument: Expression): Boolean = argument match {
    case Literal(value, _: StringType | NullType) => value == null || isPlainText(value.toString)
    case call: UnresolvedFunction => call.nameParts match {
        case Seq("map")                                              => call.arguments.forall(isPlain)
        case Seq("schema_of_json" | "schema_of_csv" | "schema_of_xml") => true
        case _                                                       => false
      }
    case _ => false
  }

  private def ofSchema(schema: DataType, options: Map[String, String]): Option[String] =
    if (isPlainText(schema.json) && options.keys.forall(isPlainText)) None
    else Some("Parsing with a schema or option that names a file or has a default")
}

object PlanRules {

  /** Whether a schema, or the name of an option, is known to name no file (`rowValidationXSDPath`) and to have no
    * default value in its metadata (`EXISTS_DEFAULT`). Spark evaluates the text of such a default where rows are
    * parsed, by an analyzer that runs no rules of extensions. Escapes of JSON could hide its name.
    */
  def isPlainText(text: String): Boolean = {
    val lower = text.toLowerCase(Locale.ROOT)
    !lower.contains("rowvalidationxsdpath") && !lower.contains("exists_default") && !lower.contains("\\u")
  }

  private val OwnPackages = Seq(
    "org.apache.spark.sql.catalyst.", "org.apache.spark.sql.types.", "org.apache.spark.unsafe.", "scala.collection.")
  private val InOwnCatalog = Set("CreateView", "CreateUserDefinedFunction", "DropView", "DropFunction", "DropTable", "SetCatalogAndNamespace",
    "CreateVariable", "DropVariable")
  private val InsertTargets = Set("UnresolvedInsertTarget")

  /** What Spark makes of values, where rows leave it. */
  private val Boxed: Set[Class[_]] = Set(
    classOf[java.lang.Boolean], classOf[java.lang.Byte], classOf[java.lang.Short], classOf[java.lang.Integer],
    classOf[java.lang.Long], classOf[java.lang.Float], classOf[java.lang.Double])

  /** How many arguments of functions come before schema and options. */
  private val ParserArguments = Map(
    "from_json" -> 1, "from_csv" -> 1, "from_xml" -> 1, "schema_of_json" -> 1, "schema_of_csv" -> 1,
    "schema_of_xml" -> 1)

  /** A setting in SQL, with its value if it is changed. */
  private def ofSetting(setting: Option[(String, Option[String])]): Option[String] = setting match {
    case Some((key, Some(_))) if SettingRules.isChangeable(key) => None
    case Some((key, None)) if SettingRules.isReadable(key)      => None
    case Some(("-v", None)) | None                              => Some("Listing all settings")
    case Some((key, _))                                         => Some(s"The setting $key")
  }

  private def isInOwnCatalog(command: String): Boolean =
    InOwnCatalog(command) || command.startsWith("Show") || command.startsWith("Describe")

  private def shown(node: AnyRef): String = node.getClass.getSimpleName.stripSuffix("$")
}
