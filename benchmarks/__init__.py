"""Benchmarks of flytraj beside its peers: `python -m benchmarks`."""
