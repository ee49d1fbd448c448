"""What a device or a step takes, measured."""
