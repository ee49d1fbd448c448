"""Live ranges, peak memory, and what stays on the chip."""
