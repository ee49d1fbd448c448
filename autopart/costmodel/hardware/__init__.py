"""Devices and how they are wired."""
