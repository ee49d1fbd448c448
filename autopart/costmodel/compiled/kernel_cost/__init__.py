"""Seconds of kernels: rooflines over what passes HBM."""
