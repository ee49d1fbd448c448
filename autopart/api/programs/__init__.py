"""Which program a schedule with a search is given: padded, in microbatches, in stages, computed again."""
