"""Deletes users: their tokens are revoked, and what is known of them is forgotten.

A later user of the same name is another one, and must not get what the former had. So nobody is deleted

- while they are the definer of definer views, which a later user of the name would lend their permissions to;
- while an administrator disabled them and an identity provider can name them: its next token would create
  them again, and nothing would say that they are disabled. It can give each name that begins with its
  prefix.

The audit log and the policies keep the name, and so do the tables and views that the user owns.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Final

from sqlalchemy import Engine, delete

from catalog.authorization.principals import require_known, revoke_every
from catalog.base.times import to_ms
from catalog.db.engine import write
from catalog.db.schema import lw_principal
from catalog.settings.identity import IdentitySettings
from catalog.state.views import defined_by
from policy.errors import RequestInvalid

_RULE: Final = "user-delete"
_MOST_SHOWN: Final = 5


def delete_user(engine: Engine, identity: IdentitySettings, now: datetime, name: str) -> int:
    """Delete a user or engine.

    Args:
        engine: the catalog's database.
        identity: the identity providers in the settings.
        now: the time, with a zone.
        name: the user.

    Returns:
        how many tokens of theirs were valid until now.

    Raises:
        RequestInvalid: there is no such user, or one of the rules of this module.
        StateUnavailable: the database does not answer.
    """
    with write(engine) as connection:
        found = require_known(connection, name)
        if found.disabled_at is not None:
            _require_no_provider(identity, name)
        _require_no_views([str(each) for each in defined_by(connection, name)], name)
        revoked = revoke_every(connection, name, to_ms(now))
        connection.execute(delete(lw_principal).where(lw_principal.c.name == name))
        return revoked


def _require_no_provider(identity: IdentitySettings, user: str) -> None:
    # Whether one has named them is no question: their claims can be forgotten, and they can come later.
    names = [name for name, each in identity.issuers.items() if user.startswith(each.prefix)]
    if names:
        raise RequestInvalid(
            f"The user {user!r} is disabled, and a token of the identity provider {' or '.join(names)} could "
            "create them again.",
            rule=_RULE,
            hint="Keep them disabled.",
        )


def _require_no_views(names: Collection[str], user: str) -> None:
    if names:
        shown = ", ".join(sorted(names)[:_MOST_SHOWN])
        more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
        raise RequestInvalid(
            f"The user {user!r} is the definer of the definer views {shown}{more}.",
            rule=_RULE,
            hint="Drop them, set their property security to invoker, or have another user replace them.",
        )
