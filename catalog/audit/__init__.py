"""What was decided, for whom, and why: records in signed chains, bounded, searched, copied and pruned."""
