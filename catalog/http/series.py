"""What identifies a value among the metrics: a name and labels."""

from __future__ import annotations

from typing import TypeAlias

Labels: TypeAlias = tuple[tuple[str, str], ...]
Series: TypeAlias = tuple[str, Labels]
