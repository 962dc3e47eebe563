"""What is killed: every operation that changes a table, with the points it passes.

`lands_at` is the first point at which the operation has taken effect: killed before, nothing has happened;
killed there or later, all of it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from pyiceberg.table.update import AssertCreate, SetPropertiesUpdate

from catalog.base.errors import CommitConflict, NoSuchTable, TableExists
from catalog.base.identifiers import TableName
from catalog.commits.committer import TableChange
from catalog.kms.clients import KmsKey
from catalog.state.pointers import Move
from catalog.state.sql_pointers import SqlPointerStore
from catalog.tables.drafts import NewTable
from catalog.writes.new_files import FileCommit
from tests.support.crash import Seen, seen
from tests.support.lake import ALICE, Lake
from tests.support.tables import ENCRYPTED, SCHEMA, Engine, append_files, fresh, make, name_of, rows

PUBLISHING = ("checked", "metadata-written", "prepared", "published")
CREATION = (*PUBLISHING, "create:unstaged")
WRITE = (
    "write:committing",
    "write:built",
    *PUBLISHING,
    "write:landed",
)
DROP = ("drop:intended", "drop:buried")


@dataclass(frozen=True)
class Subject:
    """What an operation works on; it travels to another process."""

    name: TableName
    target: TableName | None = None
    more: Any = None

    @property
    def names(self) -> list[TableName]:
        """The names by which the table is looked for."""
        return [self.name] if self.target is None else [self.name, self.target]


Look = Callable[[Lake, Subject], object]


def all_seen(lake: Lake, subject: Subject) -> list[Seen | None]:
    """What there is under each name of the subject."""
    return [seen(lake, name) for name in subject.names]


@dataclass(frozen=True)
class Scenario:
    """An operation to be killed.

    Attributes:
        points: what it passes, in order.
        lands_at: from where on it has taken effect.
        before: makes the subject.
        act: the operation.
        answers: with what it may be answered when it is repeated although it took effect.
        look: what must not change, or must, as a whole.
    """

    points: tuple[str, ...]
    lands_at: str
    before: Callable[[Lake], Subject]
    act: Callable[[Lake, Subject], None]
    answers: tuple[type[Exception], ...] = ()
    look: Look = field(default=all_seen)

    def published(self, point: str) -> bool:
        """Whether the operation has taken effect when it is killed at a point."""
        return self.points.index(point) >= self.points.index(self.lands_at)


def _table(lake: Lake) -> Subject:
    table = make(lake)
    table.append(rows(1))
    return Subject(name_of(table))


def append(lake: Lake, subject: Subject) -> None:
    """A standard writer's append."""
    lake.catalog().load_table(str(subject.name)).append(rows(100))


def encrypt(lake: Lake, subject: Subject) -> None:
    """ALTER that turns encryption on: a governed version, an epoch and a key."""
    _alter(lake, subject, ENCRYPTED)


def widen(lake: Lake, subject: Subject) -> None:
    """ALTER of the allowed list."""
    table = lake.catalog().load_table(str(subject.name))
    elsewhere = f"file://{lake.root}/elsewhere"
    _alter(lake, subject, {"read.allowed.data.paths": f"{table.location()},{elsewhere}"})


def _alter(lake: Lake, subject: Subject, properties: dict[str, str]) -> None:
    with lake.catalog().load_table(str(subject.name)).transaction() as transaction:
        transaction.set_properties(properties)


def _pair(lake: Lake) -> Subject:
    """Two tables."""
    return Subject(_table(lake).name, target=_table(lake).name)


def commit_together(lake: Lake, subject: Subject) -> None:
    """A transaction: a governed version of one table, a property of the other."""
    record = lake.services.loader.record(subject.name)
    listed = f"{record.location.canonical},file://{lake.root}/elsewhere"
    properties = {"read.allowed.data.paths": listed}, {"note": "x"}
    changes = [
        TableChange(name, (), (SetPropertiesUpdate(updates=updates),))
        for name, updates in zip(subject.names, properties, strict=True)
    ]
    lake.services.committer.commit_together(lake.caller(ALICE), changes)


def create(lake: Lake, subject: Subject) -> None:
    """CREATE of an encrypted table."""
    new = NewTable(subject.name, SCHEMA, properties=dict(ENCRYPTED))
    lake.services.creator.create(lake.caller(ALICE), new)


def _staged(lake: Lake) -> Subject:
    """A staged table with a snapshot that is written and has still to be committed."""
    name = fresh()
    transaction = lake.catalog().create_table_transaction(str(name), SCHEMA)
    transaction.append(rows(1))
    return Subject(name, more=((AssertCreate(),), transaction._updates))


def commit_staged(lake: Lake, subject: Subject) -> None:
    """The commit that completes a staged creation, as a client sends it again after losing the answer."""
    requirements, updates = subject.more
    lake.services.creator.commit_staged(lake.caller(ALICE), subject.name, requirements, updates)


def _begun(lake: Lake) -> Subject:
    """An engine's write to an encrypted table, ready to be committed."""
    table = make(lake, properties=ENCRYPTED)
    engine = Engine.begin(lake, name_of(table))
    return Subject(name_of(table), more=(engine.session.id, FileCommit("append", (engine.file(),))))


def commit_write(lake: Lake, subject: Subject) -> None:
    """An engine's commit."""
    write_id, files = subject.more
    lake.services.writes.commit(lake.caller(ALICE), write_id, files)


def _staged_write(lake: Lake) -> Subject:
    """An engine's write that creates an encrypted table, ready to be committed."""
    engine = Engine.stage(lake, fresh(), properties=ENCRYPTED)
    name = engine.session.table.record.name
    return Subject(name, more=(engine.session.id, FileCommit("append", (engine.file(),))))


def _to_rename(lake: Lake) -> Subject:
    return Subject(_table(lake).name, target=fresh())


def rename(lake: Lake, subject: Subject) -> None:
    """ALTER TABLE … RENAME."""
    assert subject.target is not None
    lake.services.lifecycle.rename(lake.caller(ALICE), subject.name, subject.target)


def drop(lake: Lake, subject: Subject) -> None:
    """DROP TABLE."""
    lake.services.lifecycle.drop(lake.caller(ALICE), subject.name)


def purge(lake: Lake, subject: Subject) -> None:
    """DROP TABLE … PURGE."""
    lake.services.lifecycle.purge(lake.caller(ALICE), subject.name)


def _foreign(lake: Lake) -> Subject:
    """A metadata.json of a table that this catalog never saw."""
    table = make(lake)
    table.append(rows(1))
    location = f"file://{lake.root}/foreign/{table.metadata.table_uuid}"
    text = table.metadata.model_copy(
        update={"location": location, "table_uuid": uuid4(), "snapshots": [], "refs": {}}
        | {"current_snapshot_id": None, "snapshot_log": [], "metadata_log": [], "last_sequence_number": 0}
    ).model_dump_json(exclude_none=True)
    path = lake.root / "foreign" / str(table.metadata.table_uuid) / "metadata" / "v1.metadata.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return Subject(fresh(), more=f"file://{path}")


def _dropped(lake: Lake) -> Subject:
    """A dropped, encrypted table's metadata.json, and another name for it."""
    table = make(lake, properties=ENCRYPTED)
    lake.catalog().drop_table(table.name())
    return Subject(fresh(), more=table.metadata_location)


def register(lake: Lake, subject: Subject) -> None:
    """REGISTER."""
    lake.services.registration.register(lake.caller(ALICE), subject.name, subject.more)


def pointer_of(lake: Lake, subject: Subject) -> object:
    """Where a table's pointer stands."""
    return SqlPointerStore(lake.services.engine, lake.settings.catalog.name).load(subject.name)


def _rolled_back(lake: Lake) -> Subject:
    """A table whose pointer was put back to where it stood before, behind the catalog's back."""
    table = make(lake)
    first = table.metadata_location
    table.append(rows(1))
    pointers = SqlPointerStore(lake.services.engine, lake.settings.catalog.name)
    assert pointers.swap([Move(name_of(table), table.metadata_location, first)]) is None
    return Subject(name_of(table))


def restore(lake: Lake, subject: Subject) -> None:
    """The administrator's way back to what was sealed last."""
    lake.services.registration.restore(lake.caller(ALICE), subject.name)


def _vault(lake: Lake) -> Subject:
    """An encrypted table with two files."""
    name = name_of(make(lake, properties=ENCRYPTED))
    append_files(lake, name)
    append_files(lake, name)
    return Subject(name)


def _rotated(lake: Lake) -> Subject:
    """The same, with a later version of its key."""
    subject = _vault(lake)
    rotate(lake, subject)
    return subject


def rotate(lake: Lake, subject: Subject) -> None:
    """A later version of a table's key."""
    lake.services.key_rotation.rotate(lake.caller(ALICE), subject.name)


def rewrap(lake: Lake, subject: Subject) -> None:
    """The data keys of a table moved to the latest version of its key."""
    lake.services.key_rewrap.rewrap(lake.caller(ALICE), subject.name)


def _mastered(lake: Lake) -> Subject:
    """A table under a master key of its own, which has a later version."""
    master = f"master-{uuid4().hex}"
    lake.kms.create_master_key(master)
    name = name_of(make(lake, properties={"encryption.master-key-id": master}))
    lake.kms.rotate_master_key(master)
    return Subject(name, more=master)


def rewrap_master(lake: Lake, subject: Subject) -> None:
    """What a master key wraps, wrapped by its latest version."""
    assert lake.services.master_keys.rewrap(subject.more).failed == ()


def _to_be_moved(lake: Lake) -> Subject:
    """A table under a master key of its own, and another key of the KMS."""
    subject = _mastered(lake)
    lake.kms.create_master_key(f"{subject.more}-2")
    return subject


def move_master(lake: Lake, subject: Subject) -> None:
    """What a master key wraps, moved to another key of the KMS."""
    moves = lake.services.master_key_moves
    moves.assign(subject.more, KmsKey("local", f"{subject.more}-2"), ALICE)
    assert moves.move(subject.more).failed == ()


def wrapped_of(lake: Lake, subject: Subject) -> object:
    """How a table's keys are stored; each opens."""
    table = lake.services.loader.load(subject.name)
    peks = lake.services.keyring.records(table.record)
    assert lake.services.keyring.open_peks(table.record, [pek.ref for pek in peks])
    return [pek.wrapped for pek in peks]


def _nothing(lake: Lake) -> Subject:
    return Subject(fresh())


SCENARIOS = {
    "commit": Scenario(PUBLISHING, "published", _table, append),
    "encrypt": Scenario(PUBLISHING, "published", _table, encrypt),
    "widen": Scenario(PUBLISHING, "published", _table, widen),
    "transaction": Scenario(PUBLISHING, "published", _pair, commit_together),
    "create": Scenario(CREATION, "published", _nothing, create, (TableExists,)),
    "staged": Scenario(CREATION, "published", _staged, commit_staged, (TableExists, CommitConflict)),
    "write": Scenario((WRITE[0], "write:looked", *WRITE[1:]), "published", _begun, commit_write),
    "staged-write": Scenario(WRITE, "published", _staged_write, commit_write),
    "rename": Scenario(
        ("rename:intended", "rename:bound"),
        "rename:bound",
        _to_rename,
        rename,
        (NoSuchTable,),
    ),
    "drop": Scenario(DROP, "drop:buried", _table, drop, (NoSuchTable,)),
    "purge": Scenario(
        (*DROP, "purge:files-deleted", "purge:directory-deleted", "purge:recorded"),
        "drop:buried",
        _table,
        purge,
        (NoSuchTable,),
    ),
    "register": Scenario(
        ("register:prepared", "register:pointer-made", "register:bound"),
        "register:pointer-made",
        _foreign,
        register,
        (TableExists,),
    ),
    "revive": Scenario(
        ("revive:intended", "revive:bound"),
        "revive:bound",
        _dropped,
        register,
        (TableExists,),
    ),
    "rotate": Scenario(("rotate:seen", "rotate:made", *PUBLISHING), "published", _vault, rotate),
    "rewrap": Scenario(("rewrap:manifest", "rewrap:listed", *PUBLISHING), "published", _rotated, rewrap),
    "rewrap-master": Scenario(
        ("rewrap-master:batch",), "rewrap-master:batch", _mastered, rewrap_master, look=wrapped_of
    ),
    "move-master": Scenario(
        ("assign-master:tried", "assign-master:assigned", "move-master:wrapped", "move-master:key"),
        "move-master:key",
        _to_be_moved,
        move_master,
        look=wrapped_of,
    ),
    "restore": Scenario(
        ("restore:pointer-moved",), "restore:pointer-moved", _rolled_back, restore, look=pointer_of
    ),
}

#: Taking back a write that creates its table, step by step.
CLEARING = ("clear:marked", "clear:forgotten", "clear:deleted", "clear:noted")

#: Deleting what killed attempts left of a write that was committed.
TIDYING = ("tidy:deleted", "tidy:noted")

#: Removing a table's garbage; the last one if a commit came in between.
CLEANING = ("clean-up:listed", "clean-up:locked", "clean-up:overtaken")

#: Expiring snapshots, and deleting what they alone have.
EXPIRING = ("expiry:decided", "expiry:committed", "expiry:deleted")

#: Replacing a table, from its begin to the commit.
REPLACING = ("replace:begun", "replace:built")

#: Beginning, aborting and cleaning up a write pass these (`test_clean_up.py`, `test_clean_up_staged.py`), and
#: so do removing garbage (`test_garbage_races.py`), expiry (`test_expiry.py`), and replacing a table
#: (`test_replaced_tables.py`).
OTHER_POINTS = frozenset(
    {"write:allowed", "write:begun", "stage:begun"}.union(CLEARING, TIDYING, CLEANING, EXPIRING, REPLACING)
)
