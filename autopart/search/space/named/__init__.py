"""The named schedules of autopart itself, a family a file: importing this package registers them.

    data      DP, Rows, Context, Spatial, Edges, Nodes, Graph: inputs in parts, each device computes on its own
    model     Megatron, MegatronVocab, MegatronSP       weights in parts: heads, hidden dims, vocabulary
    mixed     LargeWeights, GShard                      some weights in parts, data everywhere else
    experts   Experts                                   each device holds some of the experts
    state     ZeRO2, ZeRO3, ZeRO3Large                  parameters and optimizer state stored in parts

Each says what it decides on one mesh axis; `autopart/search/baselines.py` combines them over the axes of a mesh.
"""

from autopart.search.space.named import data, experts, mixed, model, state

__all__ = ["data", "experts", "mixed", "model", "state"]
