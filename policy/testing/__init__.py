"""Policy tests: cases in YAML that policies have to answer as their authors expect."""

from policy.testing.cases import Case, CaseFile
from policy.testing.coverage import Coverage, Part
from policy.testing.parse import parse_cases
from policy.testing.run import Outcome, Suite, UnderTest

__all__ = ["Case", "CaseFile", "Coverage", "Outcome", "Part", "Suite", "UnderTest", "parse_cases"]
