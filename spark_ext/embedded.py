"""An embedded catalog: stored in a directory, and served by this process to itself.

- It is what `lakewarden init` makes, so the command line works on it too: `lakewarden --config
  DIRECTORY/lakewarden.toml audit show`. Only the directory counts: settings in the environment, which may be
  those of another catalog, do not reach it.
- It listens on a free port of the loopback interface, and answers nobody without a token. The user's token
  lives in this process alone and is revoked at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from catalog.authorization.tokens import IssuedToken
from catalog.cli.first_use import make_catalog
from catalog.cli.session import calling, open_kms, operating, os_user
from catalog.cli.token import issue_recorded
from catalog.http.server import served
from catalog.service.services import Services
from catalog.settings.catalog import Settings
from policy.errors import StateUnavailable
from policy.principal import Principal

_SETTINGS: Final = "lakewarden.toml"
_DATA: Final = "data"


class EmbeddedCatalog:
    """A running catalog; close it, or use it in a `with` statement.

    Args:
        directory: where its state lies; made when it is used for the first time.
        user: for whom it makes a token, and whom a new catalog makes its administrator; by default the
            operating system's user.

    Attributes:
        uri: the address of its service.
        token: the user's token.

    Raises:
        StateUnavailable: the directory or the database cannot be used.
        RequestInvalid: the settings in the directory are malformed or of another directory.
        PolicyInvalid: its policies cannot be evaluated.
    """

    def __init__(self, directory: Path, user: str | None = None) -> None:
        directory = directory.absolute()
        principal = Principal(os_user() if user is None else user)
        _make(directory)
        settings = make_catalog(directory / _SETTINGS, {}, principal, directory / _DATA, _quiet)
        with ExitStack() as parts:
            self.uri, self.token = parts.enter_context(served_to(settings, principal))
            self._parts = parts.pop_all()

    def close(self) -> None:
        """Stop serving; a second time does nothing."""
        self._parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def served_to(settings: Settings, principal: Principal) -> Iterator[tuple[str, str]]:
    """Serve a catalog to this process; yield its service's address, and a token that ends with the block.

    Args:
        settings: the catalog's.
        principal: whose token it is.

    Raises:
        LakewardenError: as `Services.open` and `served`.
    """
    with Services.open(settings, open_kms(settings.kms)) as services, served(services) as uri:
        issued = issue_recorded(services.engine, calling(None), principal, "user", None)
        try:
            yield uri, issued.text
        finally:
            _revoke(services, issued)


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as failure:
        raise StateUnavailable(
            f"{directory} cannot be created: {failure.strerror}.",
            rule="embedded",
            hint="Choose another directory, or change its permissions.",
        ) from failure


def _revoke(services: Services, issued: IssuedToken) -> None:
    with operating(services.engine, calling(None)) as begin:
        begin("token.revoke", str(issued.id))
        services.tokens.revoke(str(issued.id))


def _quiet(sentence: str) -> None:
    """Nobody waits for what is said here."""
