"""Optimizers behind one registry, and the refinement they share."""
