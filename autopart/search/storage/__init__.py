"""What a search leaves on disk: results and records."""
