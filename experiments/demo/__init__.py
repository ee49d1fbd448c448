"""What `make demo` runs: a transformer's training step over eight simulated devices, checked number by number."""
