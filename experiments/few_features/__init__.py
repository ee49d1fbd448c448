"""Convolutions of given images of few features: what the cost model says against the TPU compiler's cycles."""
