"""A package that is no part of autopart and adds one of everything, each in a file of its own.

It imports what `test_public_names.py` lists and nothing else.
"""
