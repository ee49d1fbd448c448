"""The kernels of all layers from those of a program with few of them."""
