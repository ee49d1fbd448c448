"""The simulator, and our programs, beside XLA's GPU compiler, which needs no GPU."""
