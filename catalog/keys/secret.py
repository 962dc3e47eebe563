"""Key bytes that mask themselves.

Rules:
- `reveal` is the one door. `repr`, `str`, `format`, JSON and pickle give nothing away; pickle is refused.
- Copies of an object that holds a secret share it, so that `wipe` reaches every holder.
- Secrets are compared in constant time and cannot be hashed.
"""

from __future__ import annotations

import hmac
from typing import Any, NoReturn, SupportsIndex

_MASK = "SecretBytes(****)"


class SecretBytes:
    """Secret bytes, masked everywhere but in `reveal`.

    Args:
        data: the secret; it is copied.
    """

    __slots__ = ("_data",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, data: bytes | bytearray) -> None:
        self._data: bytearray | None = bytearray(data)

    def reveal(self) -> bytes:
        """The secret itself.

        Raises:
            ValueError: the secret has been wiped.
        """
        if self._data is None:
            raise ValueError("the secret has been wiped")
        return bytes(self._data)

    def wipe(self) -> None:
        """Overwrite the secret, as far as Python allows: bytes that were revealed before stay in memory."""
        if self._data is not None:
            self._data[:] = bytes(len(self._data))
            self._data = None

    def __len__(self) -> int:
        return 0 if self._data is None else len(self._data)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SecretBytes):
            return NotImplemented
        return hmac.compare_digest(self.reveal(), other.reveal())

    def __repr__(self) -> str:
        return _MASK

    def __format__(self, spec: str) -> str:
        return format(_MASK, spec)

    def __copy__(self) -> SecretBytes:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> SecretBytes:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a secret cannot be pickled")

    def __getstate__(self) -> NoReturn:
        raise TypeError("a secret has no state to hand out")
