"""`make bench-report`: measure logdex and the alternatives, and write docs/benchmarks.md."""
