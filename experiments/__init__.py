"""Experiments: one folder per claim, each with a README, one command, the expected figures and their tolerance."""
