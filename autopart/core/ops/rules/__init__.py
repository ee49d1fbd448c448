"""The families of ops: importing this package imports each of its files, which register their rules."""

import importlib
import pkgutil

for _family in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_family.name}")
