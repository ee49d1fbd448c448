"""The models the project is measured on: T32, IT32, UNet, GNS of the PartIR paper (appendix A.3).

Plain JAX over pytrees. Every model is a module with the same few names:

    Config                  sizes; `Config()` is the paper's model, `SMALL` runs on eight host devices in seconds
    step(config)            the function to partition
    abstract_args(config)   its arguments as `jax.ShapeDtypeStruct`s: nothing is allocated
    example_args(config)    real arguments, random, for small sizes

`tactics.py` has the tactics of appendix A.6 for each of them.
"""
