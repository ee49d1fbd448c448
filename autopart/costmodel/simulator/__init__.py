"""The simulator: seconds and bytes of a device-local program, by kernels over arrays."""
