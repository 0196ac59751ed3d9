"""Published data sets: their files, their records, and what the benchmarks make of them."""
