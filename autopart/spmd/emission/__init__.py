"""A device-local program as StableHLO."""
