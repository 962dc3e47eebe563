"""Benchmarks: every figure is a median of several runs; what is compared runs side by side in one process."""
