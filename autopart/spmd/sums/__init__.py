"""Where pending sums are done."""
