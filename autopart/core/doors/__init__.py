"""What is used of jax beside its public functions, and what may call back into Python: each in one place."""
