"""What a schedule is made of, and how one is run."""
