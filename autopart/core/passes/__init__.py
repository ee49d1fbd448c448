"""Passes over the unpartitioned program: see `program_pass.py` for what one is and how to add one."""

from autopart.core.passes.banded_products import BandedProducts
from autopart.core.passes.borders import Borders
from autopart.core.passes.cancelled_views import CancelledViews
from autopart.core.passes.combined_slices import CombinedSlices
from autopart.core.passes.dead_code import DeadCode
from autopart.core.passes.default_generators import DefaultGenerators
from autopart.core.passes.empty_arrays import EmptyArrays
from autopart.core.passes.equal_products import EqualProducts
from autopart.core.passes.even_slices import EvenSlices
from autopart.core.passes.expected_trips import ExpectedTrips
from autopart.core.passes.folded_padding import FoldedPadding
from autopart.core.passes.index_positions import IndexPositions
from autopart.core.passes.induction_variables import InductionVariables
from autopart.core.passes.joined_pads import JoinedPads
from autopart.core.passes.joined_reductions import JoinedReductions
from autopart.core.passes.known_indices import KnownIndices
from autopart.core.passes.known_windows import KnownWindows
from autopart.core.passes.layer_order import LayerOrder
from autopart.core.passes.own_outputs import OwnOutputs
from autopart.core.passes.patch_rows import PatchRows
from autopart.core.passes.program_pass import APART, PASSES, PASSES_KIND, Pass, pass_of, register_pass
from autopart.core.passes.program_verifier import InvalidProgramError, verify_program
from autopart.core.passes.recompute import POLICIES, Policy, Recomputation
from autopart.core.passes.refilled_slices import RefilledSlices
from autopart.core.passes.run_passes import PassReport, PassWarning, run_optional_passes, run_passes
from autopart.core.passes.scanned_rows import ScannedRows
from autopart.core.passes.sliced_products import SlicedProducts
from autopart.core.passes.split_argmax import SplitArgmax
from autopart.core.passes.split_cumulative import SplitCumulative
from autopart.core.passes.split_top_k import SplitTopK
from autopart.core.passes.split_transforms import SplitTransforms
from autopart.core.passes.updated_stacks import UpdatedStacks

IMPORT_PASSES: tuple[Pass, ...] = (
    SplitArgmax(),
    SplitTopK(),
    SplitCumulative(),
    SplitTransforms(),
    EmptyArrays(),
    CancelledViews(),
    InductionVariables(),
    KnownIndices(),
    KnownWindows(),
    BandedProducts(),
    EqualProducts(),
    JoinedPads(),
    DeadCode(),
    FoldedPadding(),
    Borders(),
    CombinedSlices(),
    RefilledSlices(),
    EvenSlices(),
    RefilledSlices(),
    DeadCode(),
    PatchRows(),
    SlicedProducts(),
    JoinedReductions(),
    IndexPositions(),
    UpdatedStacks(),
    ScannedRows(),
    LayerOrder(),
)
"""What every imported program goes through, before the passes that a user asks for; each is optional."""

__all__ = [
    "APART",
    "IMPORT_PASSES",
    "PASSES",
    "PASSES_KIND",
    "POLICIES",
    "BandedProducts",
    "Borders",
    "CancelledViews",
    "CombinedSlices",
    "DeadCode",
    "DefaultGenerators",
    "EmptyArrays",
    "EqualProducts",
    "EvenSlices",
    "ExpectedTrips",
    "FoldedPadding",
    "IndexPositions",
    "InductionVariables",
    "InvalidProgramError",
    "JoinedPads",
    "JoinedReductions",
    "KnownIndices",
    "KnownWindows",
    "LayerOrder",
    "OwnOutputs",
    "Pass",
    "PassReport",
    "PassWarning",
    "PatchRows",
    "Policy",
    "Recomputation",
    "RefilledSlices",
    "ScannedRows",
    "SlicedProducts",
    "SplitArgmax",
    "SplitCumulative",
    "SplitTopK",
    "SplitTransforms",
    "UpdatedStacks",
    "pass_of",
    "register_pass",
    "run_optional_passes",
    "run_passes",
    "verify_program",
]
