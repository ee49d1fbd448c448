"""What is known of ops: rules with their traits, the registry, and the table made from it."""
