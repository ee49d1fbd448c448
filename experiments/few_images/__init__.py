"""Convolutions of few images: what the cost model says against the TPU compiler's cycles."""
