"""Files of policy tests: finding and reading them, and collecting them for pytest.

What is in them, and how they are run, is `policy.testing`. pytest imports its plugins at every start, so
nothing is imported here.
"""

SUFFIX = ".policy-test.yaml"
"""How the name of a file of cases ends."""
