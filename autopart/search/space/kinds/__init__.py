"""The kinds of decision, a file each: importing this package imports each of its files, which register their kind."""

import importlib
import pkgutil

for _kind in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_kind.name}")
