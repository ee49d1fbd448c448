"""XLA's own compilers as cost models, and what their texts say."""
