"""The engine API: register a key, load, inspect, plan, write, and alter.

An engine registers a key when it starts, and signs its requests, which carry the user's token. Then the
engine gets the keys of planned files even if the user does not have `key:release`. Without an engine's
signature, the caller is the user's own process.
"""

from __future__ import annotations

from fastapi import APIRouter, Response, Security
from fastapi.responses import StreamingResponse

from catalog.authorization.restrictions import masked_sources
from catalog.http.access_models import AccessAnswer, AccessBody
from catalog.http.admin_keys import rewrap_keys, rotate_keys
from catalog.http.admin_tables import forbid_old_epochs
from catalog.http.alter_models import AlterBody
from catalog.http.auth import (
    BOOTSTRAP_SCHEME,
    ENGINE_SCHEME,
    USER_SCHEME,
    BootstrapOf,
    CallerOf,
    MetricsOf,
    ServicesOf,
)
from catalog.http.bodies import table_from_path
from catalog.http.engine_models import (
    CommitWrite,
    EngineTableAnswer,
    KeyRegistered,
    PlanBody,
    RegisterKey,
    ReplaceTable,
    StageWrite,
    WholeFilesAnswer,
    WholeFilesBody,
    WriteBegun,
    WriteStagedAnswer,
)
from catalog.http.iceberg_models import CommittedTableAnswer
from catalog.http.idempotency import OnceOf
from catalog.http.inspect_models import InspectBody, arrow_of
from catalog.http.maintenance_models import (
    DistinctCountsAnswer,
    DistinctCountsBody,
    ExpiryAnswer,
    ExpiryBody,
    OrphansAnswer,
    OrphansBody,
)
from catalog.http.new_tables import new_table_of, replacement_of
from catalog.http.operations import ERRORS, NO_CONTENT, answers
from catalog.http.plan_stream import MEDIA_TYPE, PLAN_ANSWERS, plan_answer
from catalog.http.rewrite_models import (
    DanglingAnswer,
    DanglingBody,
    DeleteRewritesAnswer,
    DeleteRewritesBody,
    ManifestsAnswer,
    ManifestsBody,
    RewritesAnswer,
    RewritesBody,
)
from catalog.http.routing import BootstrapRoute, EngineRoute
from catalog.http.screening import Bounds, new_table, screened, write
from catalog.http.screening import table as on_table
from catalog.http.table_answers import Viewer, committed_table, loaded_table, staged_write
from catalog.iceberg.expressions import filter_of
from catalog.tables.alter import first_operation
from policy.decision import Decision, Reason
from policy.errors import NotAuthenticated
from policy.privileges.operations import On, required

_TABLE = "/tables/{namespace}/{table}"

router = APIRouter(
    prefix="/engine/v1",
    route_class=EngineRoute,
    tags=["engine"],
    responses=ERRORS,
    dependencies=[Security(USER_SCHEME), Security(ENGINE_SCHEME)],
)

bootstrap_router = APIRouter(
    prefix="/engine/v1",
    route_class=BootstrapRoute,
    tags=["engine"],
    responses=ERRORS,
    dependencies=[Security(BOOTSTRAP_SCHEME)],
)


@bootstrap_router.post("/keys")
def register_key(
    body: RegisterKey, token: BootstrapOf, caller: CallerOf, services: ServicesOf
) -> KeyRegistered:
    """Register an engine's signing key: a token of an engine that has `act`."""
    about = f"{caller.principal.name} key {body.public_key.hex()}"
    on = On.engine(caller.principal, caller.principal.name)
    services.authorizer.require(caller, "engine.register", about, required("engine.register", on))
    try:
        key = services.engine_keys.register(token, body.public_key)
    except NotAuthenticated as refusal:
        denied = Decision.deny(Reason(refusal.rule or "token", refusal.message))
        services.authorizer.record(caller, "engine.register", about, denied)
        raise
    return KeyRegistered(key_id=key.id, expires_at=key.expires_at)


@router.post("/code", status_code=NO_CONTENT)
def code(caller: CallerOf, services: ServicesOf) -> Response:
    """Check whether the user can run code and read paths in the engine: `code` on the engine.

    A user's own process is not restricted.
    """
    if caller.engine is not None:
        name = caller.engine.name
        requests = required("engine.code", On.engine(caller.principal, name))
        services.authorizer.require(caller, "engine.code", name, requests)
    return Response(status_code=NO_CONTENT)


@router.post(f"{_TABLE}/load", responses=answers(EngineTableAnswer, "The table."))
def load(namespace: str, table: str, caller: CallerOf, services: ServicesOf) -> Response:
    """Load a table: SELECT, UPDATE or ALTER on it."""
    viewer = Viewer.of(caller, services)
    loaded = services.access.load(caller, table_from_path(namespace, table))
    return loaded_table(loaded, viewer, masked=masked_sources(services.authorizer, caller, loaded))


@router.post(
    f"{_TABLE}/plan",
    response_class=StreamingResponse,
    responses=PLAN_ANSWERS,
)
@screened(on_table("table.plan", bounds=Bounds.filtering))
def plan(namespace: str, table: str, body: PlanBody, caller: CallerOf, services: ServicesOf) -> Response:
    """Plan a scan: SELECT on each column that is read or filtered by.

    Every path, digest and key is checked before the first byte of the answer is sent.
    """
    plans = services.position_deletes if body.position_deletes else services.planner
    return plan_answer(plans.plan(caller, table_from_path(namespace, table), body.to_request()))


@router.post(f"{_TABLE}/access")
def access(
    namespace: str, table: str, body: AccessBody, caller: CallerOf, services: ServicesOf
) -> AccessAnswer:
    """Say which columns the user can read, masked how, and by which rule not: as for loading."""
    name = table_from_path(namespace, table)
    return AccessAnswer.of(services.explainer.explain(caller, name, body.to_request()))


@router.post(
    f"{_TABLE}/inspect",
    response_class=Response,
    responses={
        200: {
            "description": "A page of a metadata table, as an Arrow IPC stream.",
            "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
@screened(on_table("table.inspect", bounds=Bounds.filtering))
def inspect(
    namespace: str, table: str, body: InspectBody, caller: CallerOf, services: ServicesOf
) -> Response:
    """Read a page of a metadata table: as for loading; SELECT on a column, for files and manifests."""
    page = services.metadata_tables.page(caller, table_from_path(namespace, table), body.to_request())
    return Response(arrow_of(page), media_type=MEDIA_TYPE)


@router.post(f"{_TABLE}/writes")
def begin_write(namespace: str, table: str, caller: CallerOf, services: ServicesOf) -> WriteBegun:
    """Begin a write: UPDATE on the table. Its files must be below the directory in the answer."""
    return WriteBegun.of(services.writes.begin(caller, table_from_path(namespace, table)))


@router.post(f"{_TABLE}/whole-files")
@screened(on_table("table.write", bounds=Bounds.filtering))
def whole_files(
    namespace: str, table: str, body: WholeFilesBody, caller: CallerOf, services: ServicesOf
) -> WholeFilesAnswer:
    """Say whether rows can be deleted by removing whole files: UPDATE, and SELECT on the filter's columns."""
    found = services.whole_files.can_delete(
        caller,
        table_from_path(namespace, table),
        filter_of(body.filter),
        body.branch,
        case_sensitive=body.case_sensitive,
    )
    return WholeFilesAnswer(whole_files=found)


@router.post(f"{_TABLE}/alter", responses=answers(CommittedTableAnswer, "The table after the commit."))
@screened(on_table("table.commit", "table.commit"))
def alter_table(
    namespace: str,
    table: str,
    body: AlterBody,
    caller: CallerOf,
    services: ServicesOf,
    once: OnceOf,
) -> Response:
    """Change a table in one commit: ALTER, or UPDATE for branches and tags, and what each change needs."""
    name, changes = table_from_path(namespace, table), body.to_changes()
    altered = once(
        lambda: services.alterer.alter(caller, name, changes),
        lambda kept: services.repeats.table(caller, "table.commit", name, kept, first_operation(changes)),
        "commit",
    )
    return committed_table(altered, Viewer.of(caller, services))


@router.post(
    f"{_TABLE}/replace", responses=answers(WriteStagedAnswer, "The write, and what it makes of the table.")
)
@screened(on_table("table.replace", "table.replace"))
def replace_table(
    namespace: str, table: str, body: ReplaceTable, caller: CallerOf, services: ServicesOf
) -> Response:
    """Begin a write that replaces its table: ALTER, UPDATE, and what its changes need."""
    viewer = Viewer.of(caller, services)
    new = replacement_of(table_from_path(namespace, table), body)
    return staged_write(services.writes.begin_replacing(caller, new), viewer)


@router.post(f"{_TABLE}/rewrites")
@screened(on_table("table.rewrite", bounds=Bounds.filtering))
def rewrites(
    namespace: str, table: str, body: RewritesBody, caller: CallerOf, services: ServicesOf
) -> RewritesAnswer:
    """List the next files to rewrite: UPDATE on the table, SELECT on each column, unmasked."""
    found = services.rewriter.groups(caller, table_from_path(namespace, table), body.to_request())
    return RewritesAnswer.of(found)


@router.post(f"{_TABLE}/rewrites/dangling-deletes")
def remove_dangling_deletes(
    namespace: str, table: str, body: DanglingBody, caller: CallerOf, services: ServicesOf
) -> DanglingAnswer:
    """Remove the delete files that apply to no data file: UPDATE on the table."""
    name = table_from_path(namespace, table)
    removed = services.manifests.remove_dangling(caller, name, body.branch)
    return DanglingAnswer(removed_delete_files_count=removed)


@router.post(f"{_TABLE}/rewrites/position-deletes")
@screened(on_table("table.rewrite", bounds=Bounds.filtering))
def position_delete_rewrites(
    namespace: str, table: str, body: DeleteRewritesBody, caller: CallerOf, services: ServicesOf
) -> DeleteRewritesAnswer:
    """List the next position delete files to rewrite: UPDATE, SELECT on each column, unmasked."""
    name = table_from_path(namespace, table)
    return DeleteRewritesAnswer.of(services.delete_rewriter.groups(caller, name, body.to_request()))


@router.post(f"{_TABLE}/manifests/rewrite")
def rewrite_manifests(
    namespace: str, table: str, body: ManifestsBody, caller: CallerOf, services: ServicesOf
) -> ManifestsAnswer:
    """Rewrite the manifests of a partition spec: UPDATE on the table."""
    name = table_from_path(namespace, table)
    done = services.manifests.rewrite(caller, name, spec_id=body.spec_id, branch=body.branch)
    return ManifestsAnswer(rewritten_manifests_count=done.rewritten, added_manifests_count=done.added)


@router.post(f"{_TABLE}/statistics")
def keep_distinct_counts(
    namespace: str, table: str, body: DistinctCountsBody, caller: CallerOf, services: ServicesOf
) -> DistinctCountsAnswer:
    """Keep how many distinct values columns have: UPDATE on the table, SELECT on the columns."""
    name = table_from_path(namespace, table)
    services.statistics.keep(caller, name, body.snapshot_id, body.distinct_counts)
    return DistinctCountsAnswer()


@router.post(f"{_TABLE}/snapshots/expire")
def expire_snapshots(
    namespace: str, table: str, body: ExpiryBody, caller: CallerOf, services: ServicesOf
) -> ExpiryAnswer:
    """Expire snapshots and delete their files: ALTER, DROP and UPDATE on the table."""
    name = table_from_path(namespace, table)
    return ExpiryAnswer.of(services.expiry.expire(caller, name, body.to_request()))


@router.post(f"{_TABLE}/orphan-files/remove")
def remove_orphan_files(
    namespace: str, table: str, body: OrphansBody, caller: CallerOf, services: ServicesOf
) -> OrphansAnswer:
    """Remove files that nothing references: ALTER and DROP on the table."""
    name, scope = table_from_path(namespace, table), body.to_scope()
    return OrphansAnswer.of(services.garbage.collect(caller, name, remove=not body.dry_run, scope=scope))


# What administrators do, too.
router.post(f"{_TABLE}/regimes/forbid-old")(forbid_old_epochs)
router.post(f"{_TABLE}/keys/rotate")(rotate_keys)
router.post(f"{_TABLE}/keys/rewrap")(rewrap_keys)


@router.post(
    "/namespaces/{namespace}/tables", responses=answers(EngineTableAnswer, "The table that was created.")
)
@screened(new_table("table.create"))
def create_table(
    namespace: str,
    body: StageWrite,
    caller: CallerOf,
    services: ServicesOf,
    once: OnceOf,
) -> Response:
    """Create a table, encrypted or not; the required privileges are those under `/v1`."""
    viewer, new = Viewer.of(caller, services), new_table_of(namespace, body)
    created = once(
        lambda: services.creator.create(caller, new),
        lambda kept: services.repeats.table(caller, "table.create", new.name, kept),
        "create",
    )
    return loaded_table(created, viewer, masked=masked_sources(services.authorizer, caller, created))


@router.post(
    "/namespaces/{namespace}/staged-writes", responses=answers(WriteStagedAnswer, "The write and its table.")
)
@screened(new_table("table.stage"))
def stage_write(namespace: str, body: StageWrite, caller: CallerOf, services: ServicesOf) -> Response:
    """Begin a write that creates its table; privileges as for creating it. The commit makes it visible."""
    viewer = Viewer.of(caller, services)
    new = new_table_of(namespace, body)
    return staged_write(services.writes.begin_staged(caller, new), viewer)


@router.post(
    "/writes/{write_id}/commit", responses=answers(CommittedTableAnswer, "The table after the commit.")
)
@screened(write)
def commit_write(
    write_id: str, body: CommitWrite, caller: CallerOf, services: ServicesOf, metrics: MetricsOf
) -> Response:
    """Commit the files of a write; a repeated commit gets the same answer."""
    table = services.writes.commit(caller, write_id, body.to_commit())
    metrics.committed("engine")
    return committed_table(table, Viewer.of(caller, services))


@router.delete("/writes/{write_id}", status_code=NO_CONTENT)
def abort_write(write_id: str, caller: CallerOf, services: ServicesOf) -> Response:
    """Abort a write; its files are deleted."""
    services.writes.abort(caller, write_id)
    return Response(status_code=NO_CONTENT)
