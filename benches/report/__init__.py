"""`make bench-report`: measures logdex beside what else there is, and writes docs/benchmarks.md."""
