"""Local data movement of redistribution steps: what the cost model says against the TPU compiler's cycles."""
