"""`lakewarden policy sync`, `lakewarden policy sources`: policies of Ranger Admins."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson, AsUser
from catalog.cli.session import calling, open_state, operating, remote_of, settings_of
from policy.errors import LakewardenError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

    from catalog.authorization.authorizer import Caller
    from catalog.http.admin_models import SourceAnswer
    from catalog.policy_sources.synchronization import Outcome, Synchronization
    from catalog.policy_store.changes import Prepared
    from catalog.policy_store.documents import Edit
    from catalog.settings.catalog import Settings
    from policy.decision import Reason

_COLUMNS: Final = ("name", "service", "state", "policies", "left-out", "confirmed-at", "problem")

_AcceptOlder = Annotated[
    bool,
    typer.Option(
        "--accept-older", help="Also accept an older version than the last, such as of a restored Ranger."
    ),
]
_Full = Annotated[bool, typer.Option("--full", help="Download everything, also what has not changed.")]


def sync(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Sources. Default: all of them.", show_default=False),
    ] = None,
    accept_older: _AcceptOlder = False,
    full: _Full = False,
    as_user: AsUser = None,
) -> None:
    """Download policies from Ranger now, and put them in force. Exits with 1 if a source fails."""
    from catalog.authorization.principals import principals_of
    from catalog.service.policy_sync import synchronizations

    settings, failed = settings_of(ctx), False
    with open_state(settings) as engine:
        principals = principals_of(engine, settings.identity)
        found = synchronizations(settings, engine, None, principals, lambda: datetime.now(UTC), names or ())
        if not found:
            output.note("The settings have no policy source. To add one, set `[ranger.NAME]`.")
        for name, each in found.items():
            try:
                with output.progress(f"Downloading policies from {name}"):
                    outcome = _synchronize(
                        engine, each, calling(as_user), accept_older=accept_older, everything=full
                    )
            except LakewardenError as error:
                failed = True
                output.note(f"Source {name}:")
                output.error(error)
            else:
                _show(name, outcome)
    if failed:
        raise typer.Exit(1)


def sources(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the Ranger services that policies come from, and when Ranger last confirmed them."""
    remote = remote_of(ctx)
    if remote:
        found = remote.ask("GET", ("policies",))["ranger"]
    else:
        found = [each.model_dump(mode="json") for each in source_answers(settings_of(ctx))]
    output.answer({"ranger": found}, "ranger", _COLUMNS, as_json=as_json)


def source_answers(settings: Settings) -> list[SourceAnswer]:
    """Return the states of the sources in the settings, as `/admin/v1/policies` answers them.

    Raises:
        StateUnavailable: the database does not answer.
    """
    from catalog.http.admin_models import SourceAnswer
    from catalog.policy_store.source_states import SourceStates

    with open_state(settings) as engine:
        states = SourceStates(engine, settings.catalog.name, lambda: datetime.now(UTC))
        found = states.of(settings.ranger)
    return [SourceAnswer.of(each, settings.ranger[each.name], each.age_s) for each in found]


def _synchronize(
    engine: Engine, source: Synchronization, caller: Caller, *, accept_older: bool, everything: bool
) -> Outcome:
    """Synchronize one source as an operator, and record it."""
    from catalog.policy_store.changes import about
    from catalog.service.policy_sync import ACTION, decision_on

    claim = source.claim(force=True)
    assert claim is not None  # it is forced
    with operating(engine, caller) as begin:

        def record(prepared: Prepared, edits: Sequence[Edit], more: Sequence[Reason]) -> None:
            for decision in decision_on(prepared, more):
                begin(ACTION, about(edits), *decision.reasons)

        try:
            return source.attempt(claim, caller, record, accept_older=accept_older, everything=everything)
        finally:
            source.close()


def _show(name: str, outcome: Outcome) -> None:
    from policy.ranger.importing import Outcome as Taken

    download, prepared = outcome.download, outcome.prepared
    lines = [
        (each.outcome.value, f"{each.what} {each.name}", " ".join(each.reasons))
        for each in outcome.report
        if each.outcome is not Taken.TAKEN
    ]
    if lines:
        output.rows(("outcome", "part", "reason"), lines)
    versions = ", ".join(f"{part} {version}" for part, version in download.versions.items())
    done = "nothing changed" if prepared is None else f"revision {prepared.after.stored.version.revision}"
    counts = f"{download.policies} policies in force, {download.left_out} left out"
    output.line(f"{name}: {done}; {counts}; versions in Ranger: {versions}.")
    if prepared is not None and prepared.lockout is not None:
        output.note(f"After this change, {prepared.lockout}.")
