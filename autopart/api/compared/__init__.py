"""Schedules and meshes side by side, with what each costs."""
