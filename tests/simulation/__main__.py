"""Replay a schedule: ``python -m tests.simulation SEED``. Search from a seed on: ``… SEED COUNT``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.simulation.simulation import simulate, warm_up
from tests.simulation.world import simulated


def main() -> int:
    """Print the interleaving of the first schedule that has a finding, or of the only one."""
    first, *more = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory() as directory, simulated(Path(directory).resolve()) as world:
        warm_up(world)  # as the tests do
        for seed in range(first, first + (more[0] if more else 1)):
            findings = simulate(world, seed)
            if findings or not more:
                print(*world.scheduler.trace, sep="\n")
                print(f"seed {seed}:", *(findings or ["no finding"]), sep="\n  ")
                return len(findings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
