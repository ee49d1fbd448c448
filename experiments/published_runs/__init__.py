"""Estimates beside the tokens per second that others have published of training runs."""
