"""What is known of ops and values whatever is partitioned."""
