"""From PartIR:Core to device-local programs with collectives, and to what XLA runs."""
