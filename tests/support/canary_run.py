"""What a Spark does and shows in the search for leaked secrets; runs in a process of its own.

What a user sees of statements and exceptions goes into one file, each page of the UI into one of its own.
"""

from __future__ import annotations

#: Begins with the names SAID, PAGES, STATEMENTS and QUERIES, see `script`.
_SCRIPT = r'''
import re, traceback, urllib.error, urllib.request
from pathlib import Path

spark.sparkContext.setLogLevel("DEBUG")
said, pages = Path(SAID).open("w"), Path(PAGES)
jvm = spark.sparkContext._jvm


def show(title, action):
    said.write(f"\n=== {title}\n")
    try:
        said.write(str(action()))
        return None
    except Exception as error:
        said.write(f"{error}\n{traceback.format_exc()}\n{error!r}\n{vars(error)}\n")
        if getattr(error, "_origin", None) is not None:
            said.write(jvm.org.apache.spark.util.Utils.exceptionString(error._origin))
        return str(error)


def run(statement, user=None):
    of = spark if user is None else sessions[user]
    return show(f"{user}: {statement}", lambda: of.sql(statement).collect())


def explained(statement):
    frame = spark.sql(statement)
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        show(f"explain {mode}", lambda: frame._jdf.queryExecution().explainString(
            jvm.org.apache.spark.sql.execution.ExplainMode.fromString(mode)))
        run(f"EXPLAIN {'' if mode == 'simple' else mode} {statement}")
    execution = frame._jdf.queryExecution()
    show("query execution", execution.toString)
    show("rdd", lambda: execution.toRdd().toDebugString())
    show("as JSON", lambda: execution.optimizedPlan().prettyJson())
    show("plan as JSON", lambda: execution.executedPlan().prettyJson())
    for partition in execution.toRdd().partitions():
        show("partition", partition.toString)


def work():
    for statement in STATEMENTS:
        problem = run(statement)
        assert problem is None, (statement, problem)
    show("writeTo", lambda: spark.range(3).selectExpr("id", "'x' AS name").writeTo("lake.n.t").append())
    spark.table("lake.n.t").cache().count()
    spark.catalog.clearCache()
    for statement in QUERIES:
        explained(statement)
    for setting in ("SET", "SET -v", "SET spark.sql.catalog.lake"):
        run(setting)
    show("launch configuration", lambda: spark.sparkContext.getConf().getAll())
    show("launch configuration", lambda: spark.sparkContext._conf.toDebugString())


def fetched(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        return error.read()


def crawl():
    """Every page of the UI that links lead to, and its REST pages."""
    base = spark.sparkContext.uiWebUrl
    application = f"/api/v1/applications/{spark.sparkContext.applicationId}"
    listed = ["", "/jobs", "/stages?details=true&withSummaries=true", "/executors", "/allexecutors",
              "/environment", "/sql?details=true&planDescription=true&length=1000", "/storage/rdd",
              "/executors/driver/threads", "/executors/0/threads", "/allmiscellaneousprocess"]
    waiting = ["/", "/environment/", "/SQL/", "/executors/", "/api/v1/applications", "/metrics/json/",
               *(application + each for each in listed)]
    seen = set()
    while waiting and len(seen) < 400:
        path = waiting.pop(0)
        if path in seen or path.startswith("/static") or "/kill" in path:
            continue
        seen.add(path)
        content = fetched(base + path)
        (pages / f"{len(seen):04d}").write_bytes(path.encode() + b"\n" + content)
        if not path.startswith("/api"):
            links = re.findall(r'(?:href|src)="(/[^"#]*)"', content.decode("utf-8", "replace"))
            waiting += [each.replace("&amp;", "&") for each in links]
    return len(seen)


wrong_token, typed_token = told()
sessions = {user: session(user) for user in ("bob", "carol")}
sessions["carol"].conf.set(given["token_setting"], wrong_token)
statement = f"SET {given['token_setting']}={typed_token}"
assert "A token cannot be set in SQL" in show("a token in SQL", lambda: spark.sql(statement))
work()
answer("worked")
while (order := told()) is not None:
    answer(crawl() if order == "crawl" else [run(statement, user) for statement, user in order])
said.close()
spark.stop()
'''


def script(**names: object) -> str:
    """The script, in which these names have these values."""
    return "".join(f"{name} = {value!r}\n" for name, value in names.items()) + _SCRIPT
