package lakewarden.spark

import org.apache.spark.sql.{classic, SparkSession, SparkSessionExtensions}
import org.apache.spark.sql.lakewarden.catalog._
import org.apache.spark.sql.lakewarden.code._
import org.apache.spark.sql.lakewarden.statements.{
  ExplainedEvolution, IcebergStatements, InsertingMerge, KeptMatches, MetadataInCommands, OurTables, ReplacingInserts, RequiredColumns,
  SettledQueries}
import org.apache.spark.sql.lakewarden.write.RandomTaskOrder

/** `spark.sql.extensions=lakewarden.spark.LakewardenExtensions`.
  *
  *  - at launch: the driver registers its key, if it is an engine (`EngineLaunch`);
  *  - before a statement is parsed: its user's tokens are taken out of the session's settings (`SessionTokens`);
  *  - when it is parsed: Iceberg's statements about tables of Lakewarden catalogs are read (`IcebergStatements`),
  *    every other text is left to the next parser; a relation of its own takes the place of the text of a
  *    definer view (`DefinerViews`);
  *  - before relations are looked up: an engine refuses statements beside servers that nobody checks (`ServersRule`),
  *    and the session's settings are compared with the launch configuration (`LaunchRule`; rules for hints are the
  *    ones that run first);
  *  - then Iceberg's ways to name a table or a state of one become Spark's own (`IcebergReads`);
  *  - `INSERT INTO … REPLACE USING` and `REPLACE ON` become a MERGE (`ReplacingInserts`);
  *  - a MERGE counts the matches of rows that it keeps (`KeptMatches`);
  *  - a MERGE that only inserts is validated as any other (`InsertingMerge`);
  *  - the query of a MERGE that can differ each time runs once (`SettledQueries`);
  *  - changes of rows use no metadata column that they do not have (`MetadataInCommands`);
  *  - CHANGES of a table are without rows that were only copied (`ChangelogRule`);
  *  - once relations are known: none of them may be another user's (`SessionUserRule`);
  *  - columns do not become NOT NULL (`RequiredColumns`);
  *  - DELETE has no options (`DeleteRule`), and EXPLAIN changes no table (`ExplainedEvolution`);
  *  - a new table's OPTIONS do not contradict its properties (`OptionsRule`), and a stream fits its table
  *    (`StreamRule`);
  *  - before a plan is made physical: once more (`LaunchStrategy`);
  *  - the tasks of a write into ranges begin in random order (`RandomTaskOrder`).
  *
  * In an engine, code and paths of users take the permission `engine:code` (`CodeGuard`), each of these times.
  */
final class LakewardenExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    val engine = new EngineLaunch(sys.env).keys() // before any user has a session
    val grants = new CodeGrants(engine)
    def code(session: SparkSession): CodeGuard = new CodeGuard(session.asInstanceOf[classic.SparkSession], grants)
    def servers(session: SparkSession) = new ServersRule(session.asInstanceOf[classic.SparkSession], grants)
    def ours(session: SparkSession): OurTables = {
      lazy val taking = guard(session)
      lazy val guarding = code(session)
      new OurTables(session, plan => {
        taking.check(plan)
        guarding.check(plan)
      })
    }
    extensions.injectParser { (session, parser) =>
      lazy val taking = guard(session)
      lazy val guarding = code(session)
      lazy val known = ours(session)
      val statements = new IcebergStatements(name => known.contains(name))
      TokenTakingParser.over(
        parser,
        () => {
          taking.takeTokens()
          guarding.checkAnalyzer()
        },
        statements.read,
        () => DefinerViews.relation(session.asInstanceOf[classic.SparkSession]))
    }
    extensions.injectHintResolutionRule(session => servers(session))
    extensions.injectHintResolutionRule(session => new LaunchRule(guard(session)))
    extensions.injectHintResolutionRule(session => new IcebergReads(ours(session).contains))
    extensions.injectHintResolutionRule(session => new MergingWrites(ours(session).contains))
    extensions.injectHintResolutionRule(session => new CodeRule(code(session)))
    ReplacingInserts.inject(extensions, session => ours(session).contains)
    extensions.injectHintResolutionRule(_ => KeptMatches.Begun)
    extensions.injectHintResolutionRule(_ => MetadataInCommands.Begun)
    extensions.injectResolutionRule(_ => MetadataInCommands.Decided)
    extensions.injectResolutionRule(_ => new KeptMatches.Decided(_.table match {
      case table: GuardedTable => table.mergesByRewriting
      case _                   => false
    }))
    extensions.injectResolutionRule(_ => ChangelogRule)
    extensions.injectCheckRule(_ => new SessionUserRule(engine))
    extensions.injectCheckRule(_ => OptionsRule)
    extensions.injectPostHocResolutionRule(_ => ShowCreateRule)
    extensions.injectPostHocResolutionRule(_ => MetadataInCommands.Used)
    extensions.injectPostHocResolutionRule(_ => InsertingMerge)
    extensions.injectPostHocResolutionRule(_ => SettledQueries)
    extensions.injectPostHocResolutionRule(_ => RequiredColumns)
    extensions.injectCheckRule(_ => DeleteRule)
    extensions.injectCheckRule(session => new ExplainedEvolution(ours(session).contains))
    extensions.injectCheckRule(_ => StreamRule)
    extensions.injectCheckRule(_ => DefinerViews.OptionsCheck)
    extensions.injectCheckRule(session => new CodeCheck(code(session)))
    extensions.injectPlannerStrategy(session => new LaunchStrategy(guard(session)))
    extensions.injectPlannerStrategy(session => new CodeStrategy(code(session)))
    extensions.injectPlannerStrategy(_ => DefinerViews.Strategy)
    extensions.injectColumnar(_ => RandomTaskOrder)
  }

  private def guard(session: SparkSession): LaunchGuard = new LaunchGuard(session.asInstanceOf[classic.SparkSession])
}
