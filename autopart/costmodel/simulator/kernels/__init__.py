"""Which ops become one kernel: fusion after XLA's, and the graph of kernels that it leaves."""
