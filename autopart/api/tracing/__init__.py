"""A function becomes a program: its arguments and results as flat arrays, and the names of its values."""
