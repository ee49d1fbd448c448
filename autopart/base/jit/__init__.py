"""Kernels: Numba functions of one signature each, compiled once on a machine."""
