"""What one device holds and does of each op."""
