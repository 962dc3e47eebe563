"""A pytest plugin that collects files of policy tests.

Only files whose name ends in `.policy-test.yaml` are collected; a project without any never notices. Nothing
of Lakewarden is imported before the first one is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog.policy_cases import SUFFIX

if TYPE_CHECKING:
    from policy.testing import Case, Outcome, Suite


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a file of cases."""
    if not file_path.name.endswith(SUFFIX):
        return None
    file: PolicyTestFile = PolicyTestFile.from_parent(parent, path=file_path)
    return file


class PolicyTestFile(pytest.File):
    """A file of cases."""

    def collect(self) -> Iterator[pytest.Item]:
        """One item a case."""
        from catalog.policy_cases.files import Loader
        from policy.errors import LakewardenError

        loader = self.config.stash.setdefault(_LOADER, Loader())
        try:
            suite = loader.load(self.path)
        except LakewardenError as error:
            raise self.CollectError(str(error)) from error
        for case in suite.file.cases:
            yield PolicyTestCase.from_parent(self, name=case.name, suite=suite, case=case)


class CaseFailed(AssertionError):
    """A case was answered in another way than expected."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(" ".join(outcome.problems))
        self.outcome = outcome


class PolicyTestCase(pytest.Item):
    """One case."""

    def __init__(self, *, suite: Suite, case: Case, **rest: Any) -> None:
        super().__init__(**rest)
        self._suite = suite
        self._case = case

    def runtest(self) -> None:
        """Ask, and compare the answer."""
        outcome = self._suite.run(self._case)
        if not outcome.passed:
            raise CaseFailed(outcome)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What was expected, and why the answer is another one; a defect keeps its traceback."""
        if not isinstance(excinfo.value, CaseFailed):
            return super().repr_failure(excinfo, style)
        from policy.testing.report import failure_lines

        return "\n".join((f"{self.path}:{self._case.line}", *failure_lines(excinfo.value.outcome)))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the case stands."""
        return self.path, self._case.line - 1, self.name


_LOADER = pytest.StashKey["Any"]()
