"""How long partitioning T32 takes, beside XLA's compile time of the same program."""
