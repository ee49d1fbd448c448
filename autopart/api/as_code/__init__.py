"""Decisions written down as the manual tactics that make them."""
