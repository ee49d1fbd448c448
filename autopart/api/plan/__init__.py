"""Plans: what a schedule decided, as values that are saved, loaded, compared and applied."""
