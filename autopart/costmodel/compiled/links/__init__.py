"""Seconds of collectives and redistributions on the links."""
