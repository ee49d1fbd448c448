"""The tactics of the PartIR paper (appendix A.6) for the models of this folder, on mesh axes "batch" and "model".

    BP    the batch                          one all_reduce a gradient
    MP    heads and the MLP's hidden dim     Megatron: `out` and `down` are inferred from `qkv` and `up`
    Z2    optimizer state, not parameters    gradients become reduce_scatters, updated parameters are gathered
    Z3    optimizer state and parameters     parameters are gathered at each use
    EMB   the embedding's model dim          residual activations are tiled too
    ES    the edges of a graph               nodes are replicated
    MQ    the KV cache's batch               attention exchanges query heads for batch rows and back

A schedule is a list of them; which dim "first divisible" is depends on the tactics before it.
"""

from __future__ import annotations

import autopart as ap

T32_MATRICES = ("*embedding", "*/qkv", "*/out", "*/up", "*/down")
"""What Z2 and Z3 act on: the embedding and the four matrices of a block."""

_SHARDED = {name: ap.FIRST_DIVISIBLE_DIM for name in T32_MATRICES}
_WHOLE = {name: ap.REPLICATED for name in T32_MATRICES}

BP = ap.ManualPartition({"batch": 0}, axis="batch", name="BP")
MP = ap.ManualPartition({"params": {"*/qkv": 2, "*/up": 1}}, axis="model", name="MP")
Z2 = ap.ManualPartition({"params": _WHOLE, "opt_state": _SHARDED}, axis="batch", name="Z2")
Z3 = ap.ManualPartition({"params": _SHARDED, "opt_state": _SHARDED}, axis="batch", name="Z3")
EMB = ap.ManualPartition({"params": {"embedding": 1}}, axis="model", name="EMB")

UNET_BP = BP
UNET_MP = ap.ManualPartition(
    {"params": {"*/widen/weight": 3, "attention/query/weight": 1, "attention/key/weight": 1}}, axis="model", name="MP"
)
UNET_Z2 = ap.ManualPartition({"params": ap.REPLICATED, "opt_state": ap.FIRST_DIVISIBLE_DIM}, axis="batch", name="Z2")
UNET_Z3 = ap.ManualPartition(
    {"params": ap.FIRST_DIVISIBLE_DIM, "opt_state": ap.FIRST_DIVISIBLE_DIM}, axis="batch", name="Z3"
)

GNS_ES = ap.ManualPartition({"graph": {"edges": 0, "senders": 0, "receivers": 0}}, axis="batch", name="ES")

IT32_BP = ap.ManualPartition({"token": 0, "cache": 0}, axis="batch", name="BP")
IT32_MP = ap.ManualPartition({"params": {"*/query": 1, "*/up": 1}}, axis="model", name="MP")
IT32_MP_OUTSIDE_ATTENTION = ap.ManualPartition(
    {
        "params": {"*/query": 1, "*/out": 0, "*/up": 1},
        "query": ap.REPLICATED,
        "key_value": ap.REPLICATED,
        "mixed": ap.REPLICATED,
    },
    axis="model",
    name="MP",
)
"""Megatron that stops at the tags around the attention, so that MQ can tile the batch between them."""

IT32_MQ = ap.ManualPartition({"cache": 0}, axis="model", name="MQ")
