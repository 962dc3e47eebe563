"""A throw-away PostgreSQL cluster for tests, from the binaries that the system has installed.

The server listens on a socket in its own directory only, so there is no port to collide on, and only the user
who runs the tests (and root) can reach it. It trades durability for speed: a crash of the machine loses it.
PostgreSQL refuses to run as root; tests that run as root start it as `postgres`, or as `nobody`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

try:
    import psycopg
except ImportError:
    psycopg = None  # type: ignore[assignment]

SUPERUSER = "lakewarden"
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "100",
    "shared_buffers": "32MB",
}
#: The order of most databases that are set up without a thought, where `a-b` stands between `a/x` and `a0`.
_LANGUAGE = "LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
_INITDB = ("-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
_PATIENCE = 60.0  # seconds for a start; a loaded machine may need many


class PostgresServer:
    """A cluster of its own, which tests may also stop and start again to see what a lost database does."""

    def __init__(self, binaries: Path, *, keeps_commits: bool = False) -> None:
        """Initialises the cluster; `start` starts it.

        Args:
            binaries: where PostgreSQL's programs are.
            keeps_commits: whether a commit survives `crash`, as in production.
        """
        self._binaries = binaries
        self._settings = _SETTINGS | ({"synchronous_commit": "on"} if keeps_commits else {})
        self._user = _unprivileged()
        self.directory = Path(tempfile.mkdtemp(prefix="lw-pg-", dir=_short()))
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            os.chown(self.directory, self._user.pw_uid, self._user.pw_gid)
        self._initialise()

    def url(self, database: str) -> str:
        """The SQLAlchemy URL of a database."""
        return f"postgresql+psycopg://{SUPERUSER}@/{database}?host={self.directory}"

    def create_database(self) -> str:
        """Makes a fresh, empty database that orders text by a language, and returns its SQLAlchemy URL."""
        name = f"lw_{uuid.uuid4().hex}"
        with self._connect() as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE template0 {_LANGUAGE}')
        return self.url(name)

    def start(self) -> None:
        """Starts the server and waits until it answers.

        Raises:
            RuntimeError: it ended, or did not answer in time; the message carries its log.
        """
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, *self._flags()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                **self._as_user(),
            )
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"PostgreSQL did not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stops the server, ending open connections; one that does not run is fine."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)  # "fast": no waiting for clients
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(20)
        self._process = None

    def crash(self) -> None:
        """Ends the server at once, without a checkpoint; it recovers when it starts again."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)  # "immediate"
            self._process.wait(20)
            self._process = None

    def is_running(self) -> bool:
        """Returns whether the server has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    def size(self, url: str) -> int:
        """Returns the bytes of a database.

        Raises:
            OSError: the server does not answer.
        """
        name = url.partition("@/")[2].partition("?")[0]
        try:
            with self._connect() as connection:
                found = connection.execute("SELECT pg_database_size(%s)", (name,)).fetchone()
        except psycopg.Error as error:
            raise OSError("PostgreSQL does not answer") from error
        return int(found[0]) if found else 0

    def remove(self) -> None:
        """Stops the server and removes the cluster."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _flags(self) -> list[str]:
        settings = {**self._settings, "unix_socket_directories": str(self.directory)}
        return [flag for name, value in settings.items() for flag in ("-c", f"{name}={value}")]

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _log(self) -> Path:
        return self.directory / "server.log"

    def _initialise(self) -> None:
        made = subprocess.run(
            [self._binaries / "initdb", "-D", self._data, "-U", SUPERUSER, *_INITDB],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=self.directory,
            timeout=_PATIENCE,
            check=False,
            **self._as_user(),
        )
        if made.returncode != 0:
            self.remove()
            raise RuntimeError(f"initdb failed: {made.stderr.decode(errors='replace')[-2000:]}")

    def _as_user(self) -> dict[str, object]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(
            host=str(self.directory), user=SUPERUSER, dbname="postgres", autocommit=True, connect_timeout=5
        )

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError), self._connect():
            return True
        return False


def start_postgres() -> tuple[PostgresServer | None, str]:
    """A running server, or None; and why there is none, for the reason of a skip."""
    binaries = find_binaries()
    if binaries is None:
        return (
            None,
            "PostgreSQL is not installed (initdb was found neither in /usr/lib/postgresql nor on PATH)",
        )
    if psycopg is None:
        return None, "psycopg is not installed (extra: postgres)"
    if os.geteuid() == 0 and _unprivileged() is None:
        return None, "PostgreSQL does not run as root, and there is no user postgres or nobody"
    server = PostgresServer(binaries)
    server.start()
    return server, ""


def find_binaries() -> Path | None:
    """The directory of PostgreSQL's binaries: Debian's newest version, else where PATH leads."""
    debian = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = sorted(debian, key=lambda path: float(path.parts[-3]))
    if newest:
        return newest[-1].parent
    found = shutil.which("initdb")
    return None if found is None else Path(found).resolve().parent


def _short() -> str:
    """A directory for sockets: macOS has temporary directories whose names are too long for one."""
    directory = tempfile.gettempdir()
    return directory if len(directory) <= 20 else "/tmp"


def _unprivileged() -> pwd.struct_passwd | None:
    """The user to run as when the tests run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return None
