"""Whole models as people write them, drawn by a seed, lowered, searched and run: see `drawn.py`."""
