"""From loop nests to layouts: what each op leaves, what each use needs, and where it is moved."""
