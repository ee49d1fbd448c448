"""What every package stands on: errors, registries, units, quoting, checked arguments."""
