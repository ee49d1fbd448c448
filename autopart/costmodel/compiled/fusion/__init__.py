"""Which ops run in one kernel."""
