"""What the tests of metadata tables share."""

from tests.planning.conftest import _shared, lake, policies

__all__ = ["_shared", "lake", "policies"]
