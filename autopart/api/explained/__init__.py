"""What a partitioned program says of itself: why a value is laid out as it is, and what another decision would cost."""
