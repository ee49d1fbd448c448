"""What people write by hand beside what a search finds."""
