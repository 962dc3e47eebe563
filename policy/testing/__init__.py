"""Policy tests: cases in YAML that policies have to answer as their authors expect."""

from policy.testing.cases import Case, CaseFile
from policy.testing.coverage import Coverage, Part
from policy.testing.parse import parse_cases
from policy.testing.run import Outcome, Suite, Tested

__all__ = ["Case", "CaseFile", "Coverage", "Outcome", "Part", "Suite", "Tested", "parse_cases"]
