"""No key, token, passphrase or password is found in anything that catalog and command line leave or show.

A catalog is served, worked with, refused, operated from the command line and asked for everything that it
tells, with logging at DEBUG; KMS back ends are used and made to fail. Then everything is searched for every
secret that the process made, opened or was given meanwhile. Answers that hand over a secret on purpose are
left out: plans and begun writes, which carry the key made for them, and the answer that shows a new token.
What is sent to a collector of OpenTelemetry is searched too.

That the search finds what is there is shown in `tests/spark/test_canary_searcher.py`. What Spark leaves and
shows is searched in `tests/spark/test_canary.py`.
"""

from __future__ import annotations

import re
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest

from catalog.audit.stream import Exports
from catalog.cli.main import app
from catalog.crypto.secret import SecretBytes
from catalog.kms.aws import AwsKms
from catalog.kms.interface import KeyContext, KmsClient
from catalog.kms.local import LocalKms
from catalog.kms.resilient import ResilientKms
from catalog.service.services import Services
from catalog.settings.kms import KmsCallSettings
from policy.errors import LakewardenError
from tests.support.canary import WINDOW, Canary, debug_log, files_below, recorded_secrets
from tests.support.command_line import CliRunner
from tests.support.fault_proxy import AWS_DIALECT, Fault, fault_proxy
from tests.support.hadoop_kms import hadoop
from tests.support.kms_backends import Backend, CheapPassphrase
from tests.support.lake import (
    ALICE,
    MASTER_KEY,
    Lake,
    lake_settings,
    standard_policies,
    upgrade,
    write_policies,
)
from tests.support.moto_kms import aws, moto_kms
from tests.support.otlp import collector
from tests.support.service import ENGINE, Service, running
from tests.support.tables import ENCRYPTED, Engine, append_files, make, named
from tests.support.transit_backends import transit

PASSPHRASE = "canary-passphrase-7hQ2vLx9"
PASSWORD = "canary-password-Zx83kqPw"
COLLECTOR_KEY = "canary-collector-5vNw8sYt"
WRONG_TOKEN = "lw_" + "0123456789abcdef" * 2 + "_" + "Q7canaryXz" * 4 + "abc"
CONTEXT = KeyContext("prod", UUID(int=7))
TABLE = "db.secret"
TOKEN = re.compile(r"lw_[0-9a-f]{32}_([A-Za-z0-9_-]{20,})")
#: The file whose purpose it is to hold a key.
KEY_FILE = "keystore.key"

COMMANDS = (
    ("db", "check"),
    ("table", "show", TABLE),
    ("key", "list", TABLE),
    ("key", "masters"),
    ("key", "create-master", "another"),
    ("key", "disable-master", "another"),
    ("key", "enable-master", "another"),
    ("audit", "show"),
    ("audit", "export"),
    ("audit", "verify"),
    ("token", "list"),
    ("policy", "show"),
    ("policy", "report"),
    ("key", "list", "db.none"),
    ("key", "disable-master", "none"),
    ("token", "revoke", "none"),
    ("table", "set", TABLE, "encryption.algorithm=DES"),
)
#: Settings with mistakes in them, and secrets.
MISTAKES: dict[str, dict[str, str]] = {
    "misspelt": {"LAKEWARDEN_KMS__OPTIONS__PASPHRASE": PASSPHRASE},
    "too much": {"LAKEWARDEN_KMS__OPTIONS__KEY_FILE": "/nowhere"},
    "another kind": {"LAKEWARDEN_KMS__KIND": "aws"},
    "no database": {"LAKEWARDEN_DATABASE__URL": f"postgresql://u:{PASSWORD}@127.0.0.1:1/none"},
    "no url": {"LAKEWARDEN_DATABASE__URL": f"postgres//u:{PASSWORD}@"},
    "half a key": {"LAKEWARDEN_S3__SECRET_ACCESS_KEY": PASSWORD},
    "another passphrase": {"LAKEWARDEN_KMS__OPTIONS__PASSPHRASE": PASSPHRASE[::-1]},
}


@dataclass
class Haystack:
    """What the run left and showed.

    Attributes:
        root: where all files are.
        shown: what was answered, printed or raised, by what it is.
        secrets: what must not be in it.
    """

    root: Path
    shown: dict[str, bytes] = field(default_factory=dict)
    secrets: dict[str, bytes] = field(default_factory=dict)

    def add(self, what: str, text: str | bytes) -> None:
        """Put something shown into the haystack."""
        content = text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace")
        self.shown[f"{len(self.shown)} {what}"] = content

    def attempt(self, what: str, action: Callable[[], object]) -> object:
        """Do something; what it returns is only kept by its `repr`, what it raises with all causes."""
        try:
            result = action()
        except LakewardenError as error:
            self.add(what, told(error))
            return None
        self.add(what, repr(result))
        return result

    def text(self, word: str) -> str:
        """What was shown by things of that name."""
        return b"\n".join(each for what, each in self.shown.items() if word in what).decode(
            "utf-8", "replace"
        )


def told(error: BaseException) -> str:
    """All that can be learned of an exception, and of those behind it, without looking into frames."""
    parts, seen = ["".join(traceback.format_exception(error))], error
    waiting: list[BaseException | None] = [seen]
    while waiting:
        each = waiting.pop()
        if each is not None:
            parts += [repr(each), str(each), repr(each.args), repr(vars(each))]
            waiting += [each.__cause__, each.__context__]
    return "\n".join(parts)


@contextmanager
def _service(root: Path) -> Iterator[Service]:
    """A service whose keystore has a passphrase, which forgets keys at once and streams its audit trail."""
    root.mkdir()
    write_policies(root, standard_policies())
    settings = lake_settings(root, **_overrides(root))
    kms = LocalKms.create(settings.kms.options.keystore, CheapPassphrase(SecretBytes(PASSPHRASE.encode())))
    kms.create_master_key(MASTER_KEY)
    upgrade(settings.database.url)
    with Services.open(settings, kms) as services, running(Lake(root, settings, services, kms)) as service:
        files = Exports(services.engine, settings.audit.stream_file, settings.audit.checkpoint_file)
        yield service
        services.audit.close()
        files.close()


def _overrides(root: Path) -> dict[str, str]:
    return {
        "KMS__PEK_TTL_S": "0.001",
        "KMS__OPTIONS__PASSPHRASE": PASSPHRASE,
        "AUDIT__STREAM_FILE": str(root / "stream.jsonl"),
        "AUDIT__CHECKPOINT_FILE": str(root / "checkpoints.jsonl"),
        "S3__ACCESS_KEY_ID": "dave",
        "S3__SECRET_ACCESS_KEY": PASSWORD,
        "TELEMETRY__TRACES": "true",
        "TELEMETRY__METRICS": "true",
    }


def _environment(root: Path) -> dict[str, str]:
    named = {"DATA_DIR": str(root), "WAREHOUSE": f"file://{root}/warehouse"}
    return {f"LAKEWARDEN_{name}": value for name, value in (named | _overrides(root)).items()}


def _work(service: Service, seen: Haystack) -> None:
    """Tables, files, plans and refusals; keys are rotated, rewrapped and revoked."""
    lake = service.lake
    lake.catalog().create_namespace("db")
    make(lake, named("secret"), properties=ENCRYPTED)
    append_files(lake, named("secret"), 3)
    with service.client(ALICE, ENGINE) as client:
        plan = client.post("/engine/v1/tables/db/secret/plan", json={})
        assert plan.status_code == 200
        _transplanted(lake, seen)
        for what in ("rotate", "rewrap"):
            answer = client.post(f"/admin/v1/tables/db/secret/keys/{what}", json={})
            assert answer.status_code == 200, answer.text
            seen.add(f"answer {what}", answer.content)
        lake.kms.disable_master_key(MASTER_KEY)
        refusal = client.post("/engine/v1/tables/db/secret/plan", json={})
        assert refusal.status_code == 403
        seen.add("answer revoked", refusal.content)
        lake.kms.enable_master_key(MASTER_KEY)


def _transplanted(lake: Lake, seen: Haystack) -> None:
    """A key that was wrapped for another file."""
    engine = Engine.begin(lake, named("secret"))
    stolen = engine.key(engine.path())
    seen.attempt("transplanted", lambda: engine.append(engine.file(keys=(stolen,))))


def _ask_everything(service: Service, seen: Haystack) -> None:
    """Every operation that reads, by a user who can, and by a caller with a wrong token."""
    with service.client(ALICE) as client:
        pek = client.get("/admin/v1/tables/db/secret/keys").json()["keys"][0]["id"]
        given = {
            "prefix": service.lake.settings.catalog.name,
            "namespace": "db",
            "table": "secret",
            "pek_id": pek,
        }
        description = client.get("/openapi.json")
        seen.add("answer openapi", description.content)
        paths = [path for path, operations in description.json()["paths"].items() if "get" in operations]
        for path in paths:
            asked = re.sub(r"{(\w+)}", lambda name: str(given.get(name[1], "none")), path)
            for headers in ({}, {"Authorization": f"Bearer {WRONG_TOKEN}"}):
                answer = client.get(asked, headers=headers)
                seen.add(
                    f"answer {path} {answer.status_code}", f"{answer.headers!r}".encode() + answer.content
                )
        for body in (b"{", WRONG_TOKEN.encode(), b'{"x": "' + PASSPHRASE.encode() + b'"}'):
            answer = client.post(
                "/admin/v1/master-keys", content=body, headers={"Content-Type": "application/json"}
            )
            assert answer.status_code == 400
            seen.add("answer malformed", answer.content)


def _operate(service: Service, seen: Haystack) -> None:
    """The command line, for people and for machines, done and refused, with settings that are wrong."""
    environ = _environment(service.lake.root)
    for command in COMMANDS:
        for options in ((), ("--json",)):
            _run(seen, (*command, *options), environ)
    _issue(seen, environ)
    for what, wrong in MISTAKES.items():
        for command in (("key", "list", TABLE), ("key", "masters"), ("db", "check")):
            _run(seen, command, environ | wrong, what)


def _run(seen: Haystack, command: tuple[str, ...], environ: dict[str, str], what: str = "") -> None:
    result = CliRunner().invoke(app, command, env=environ)
    seen.add(f"command {what} {' '.join(command)} {result.exit_code}", result.stdout + result.stderr)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        seen.add("exception of the command line", told(result.exception))


def _issue(seen: Haystack, environ: dict[str, str]) -> None:
    """A token that is shown this once."""
    issued = CliRunner().invoke(app, ("token", "issue", "erin"), env=environ)
    found = TOKEN.search(issued.stdout)
    assert found is not None, (issued.stdout, issued.stderr)
    seen.secrets["token of erin"] = found[1].encode()
    seen.add("issued", (issued.stdout + issued.stderr).replace(found[0], ""))


def _use_kms(backend: Backend, seen: Haystack) -> None:
    """Every call to a KMS, and every way in which it refuses."""
    client = backend.client
    made = client.create_key(backend.lake, 32, CONTEXT)
    rewrapped = client.rewrap_keys([(made.wrapped, CONTEXT)])
    for context in (CONTEXT, KeyContext("prod", UUID(int=8))):
        for wrapped in (made.wrapped, *rewrapped, made.wrapped[:-3], b"", b"\1" + bytes(100)):
            seen.attempt("kms", lambda wrapped=wrapped, context=context: client.get_key(wrapped, context))
    seen.attempt("kms", lambda: client.create_key("none", 32, CONTEXT))
    seen.attempt("kms", lambda: client)
    backend.disable(backend.lake)
    seen.attempt("kms", lambda: client.get_key(made.wrapped, CONTEXT))
    backend.stop()
    seen.attempt("kms", lambda: client.get_key(made.wrapped, CONTEXT))


def _break_kms(seen: Haystack) -> None:
    """A KMS whose answers come late, broken, or with other keys in them."""
    with moto_kms() as kms, fault_proxy(kms.endpoint, AWS_DIALECT) as (url, proxy):
        policy = KmsCallSettings(attempts=1, attempt_s=0.3, failures=1000)
        options = kms.options(endpoint=url, connect_timeout_s=0.2, request_timeout_s=0.2)
        client: KmsClient = ResilientKms(AwsKms.connect(options), policy)
        made = client.create_key(kms.lake, 32, CONTEXT)
        for fault in Fault:
            with proxy.going_wrong(fault):
                seen.attempt(f"kms {fault.name}", lambda: client.get_key(made.wrapped, CONTEXT))
                seen.attempt(f"kms {fault.name}", lambda: client.create_key(kms.lake, 32, CONTEXT))
        impatient = ResilientKms(
            AwsKms.connect(kms.options(endpoint=url)), KmsCallSettings(attempts=1, attempt_s=0.1)
        )
        with proxy.going_wrong(Fault.HANG):
            seen.attempt("kms given up", lambda: impatient.get_key(made.wrapped, CONTEXT))


@pytest.fixture(scope="module")
def haystack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Haystack]:
    root = tmp_path_factory.mktemp("canary")
    (root / "temporary").mkdir()
    seen = Haystack(root)
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch, recorded_secrets() as secrets:
        patch.setattr(tempfile, "tempdir", str(root / "temporary"))
        patch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"api-key={COLLECTOR_KEY}")
        receiver = stack.enter_context(collector())
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        with debug_log(root / "catalog.log"), _service(root / "lake") as service:
            _work(service, seen)
            _ask_everything(service, seen)
            _operate(service, seen)
            for kind in (aws, transit, hadoop):
                (root / kind.__name__).mkdir()
                with kind(root / kind.__name__) as backend:
                    _use_kms(backend, seen)
            _break_kms(seen)
            with service.client(ALICE) as client:
                seen.add("answer metrics", client.get("/metrics").content)
            tokens = {str(name): TOKEN.fullmatch(service.token(*name)) for name in service._tokens}
        for path, body in receiver.bodies:
            seen.add(f"sent {path}", body)
        assert receiver.headers[0]["api-key"] == COLLECTOR_KEY
    seen.secrets |= {
        f"secret {number}": each for number, each in enumerate(sorted(secrets)) if len(each) >= WINDOW
    }
    seen.secrets |= {name: found[1].encode() for name, found in tokens.items() if found}
    seen.secrets |= {"wrong token": WRONG_TOKEN[-40:].encode(), "passphrase": PASSPHRASE.encode()}
    seen.secrets |= {"collector key": COLLECTOR_KEY.encode()}
    seen.secrets |= {"password": PASSWORD.encode(), "turned around": PASSPHRASE[::-1].encode()}
    yield seen


def test_nothing_secret_is_found_anywhere(haystack: Haystack) -> None:
    canary = Canary(haystack.secrets)
    files = [each for each in files_below(haystack.root) if each.name != KEY_FILE]
    found = canary.search_files(files)
    for what, content in haystack.shown.items():
        found += canary.search(what, content)
    assert found == [], "\n".join(map(str, found[:20]))


def test_what_was_searched_is_all_there(haystack: Haystack) -> None:
    log = (haystack.root / "catalog.log").read_text()
    assert "DEBUG sqlalchemy.engine" in log and "INFO lakewarden.http" in log
    assert "DEBUG botocore" in log and "DEBUG urllib3" in log
    assert (haystack.root / "lake" / "stream.jsonl").stat().st_size > 0
    assert (haystack.root / "lake" / "lakewarden.db").stat().st_size > 0
    assert "DEBUG lakewarden.calls" in log
    traces = haystack.text("sent /v1/traces")
    assert "kms unwrap" in traces and "table.plan" in traces
    assert "lakewarden_kms_calls_total" in haystack.text("sent /v1/metrics")
    assert "lakewarden_kms_calls_total" in haystack.text("answer /metrics 200")
    assert "/admin/v1/tables/{namespace}/{table}/keys" in haystack.text("answer openapi")
    assert "NotAuthenticated" in haystack.text("401") and "table.plan" in haystack.text(
        "answer /admin/v1/audit 200"
    )
    assert "DecryptionRefused" in haystack.text("transplanted") and "KeyNotUsable" in haystack.text("revoked")
    for rule in ("kms-deadline", "rule=kms]", "length"):
        assert rule in haystack.text(" kms")
    done, refused = haystack.text(" 0"), haystack.text(" 1")
    assert MASTER_KEY in done and "is not valid" in refused and "does not respond" in refused


def test_what_was_searched_for_are_the_keys(haystack: Haystack) -> None:
    lengths = [len(each) for name, each in haystack.secrets.items() if name.startswith("secret ")]
    assert lengths.count(32) >= 15
    assert PASSPHRASE.encode() in haystack.secrets.values()
    assert "token of erin" in haystack.secrets and len(haystack.secrets) > 30
