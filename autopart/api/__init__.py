"""What users call: jit, partition, tactics, metadata."""
