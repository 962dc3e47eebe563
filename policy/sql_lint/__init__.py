"""DDL before it runs: which statements of a script would be allowed.

context = LintContext(principal, policies, now, catalog="lake", database="sales")
for answer in lint(text, "spark", context):
    print(answer.line, answer.kind, answer.decision.allowed, answer.decision.explanation)
"""

from policy.sql_lint.context import LintContext, TableFacts
from policy.sql_lint.lint import Dialect, StatementDecision, lint

__all__ = ["Dialect", "LintContext", "StatementDecision", "TableFacts", "lint"]
