"""What each stage of partitioning takes of programs of one kind as they become larger."""
