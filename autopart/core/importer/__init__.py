"""StableHLO modules as programs."""

from autopart.core.importer.replay import import_module

__all__ = ["import_module"]
