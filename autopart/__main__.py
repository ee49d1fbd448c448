"""`python -m autopart`: the command line, as the console script `autopart` runs it."""

from __future__ import annotations

import sys

from autopart.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
