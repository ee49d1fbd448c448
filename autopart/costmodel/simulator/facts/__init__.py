"""What a program says once, whatever its layouts: facts about each op and value, which `arrays.py` collects."""
