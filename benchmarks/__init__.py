"""Benchmarks, data readers and metrics. Nothing in the package depends on this."""
