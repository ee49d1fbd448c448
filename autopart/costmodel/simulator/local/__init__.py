"""What one device holds of a lowered program, and the work of each op there."""
