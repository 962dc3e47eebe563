"""Benchmarks: every figure is a median of several runs, and comparisons run side by side in one process."""
