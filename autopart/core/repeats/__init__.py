"""Which parts of a program repeat, and programs with fewer of them."""
