"""StableHLO modules as programs."""

from autopart.core.importer.checker import check_in_child
from autopart.core.importer.module_file import read_module_file
from autopart.core.importer.replay import import_module, read_module
from autopart.core.importer.text_scan import BYTECODE, check_text, needs_child

__all__ = [
    "BYTECODE",
    "check_in_child",
    "check_text",
    "import_module",
    "needs_child",
    "read_module",
    "read_module_file",
]
