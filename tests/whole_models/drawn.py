"""What a seed draws: a model as a value, of which a failing one can be made smaller field by field.

    Drawn.of(17)            equinox, 9 x (attention, sorted_experts) in a dict of odd names, adafactor, bf16, ...
    run.py                  lowers it under schedules, runs it where it is shallow, compares
    smaller(drawn)          models with one thing less, for shrinking

Deep models have real sizes and only lower. Shallow ones are small and run. Some have a dim of 0, 1 or a prime. One of
five has a bare head and no training around it, so that its blocks end the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from tests.whole_models.blocks import BLOCKS

FRAMEWORKS = ("plain", "plain", "linen", "nnx", "equinox", "haiku")
STACKS = ("list", "tuple", "dict", "odd", "scan", "mixed")
ENDS = ("ends", "Ends", "zz")
"""Names of the parameters before and after the blocks: some sort before those of the blocks, some after."""

INPUTS = ("tokens", "vectors", "images")
HEADS = ("mean", "first", "last", "all", "tied")
STEPS = ("train", "train", "train", "loss", "gradient", "forward", "decode", "beam")
DTYPES = ("float32", "float32", "bfloat16", "mixed", "float64")
OPTIMIZERS = (
    "sgd", "sgd", "adam", "adamw", "adafactor", "lion", "lamb", "adagrad", "adadelta", "rmsprop", "novograd", "sm3",
    "yogi", "radam", "adabelief", "adan", "fromage", "noisy_sgd", "sign_sgd", "nadamw", "lars", "rprop", "momentum",
    "clipped", "scheduled", "masked", "multi_steps", "muon", "schedule_free", "prodigy", "ademamix", "sophia", "adopt",
    "madgrad",
)  # fmt: skip
SCHEDULES = (
    "none", "batch", "batch", "batch+model", "zero3", "padded", "named", "named", "search", "microbatch", "recompute",
    "plan",
)  # fmt: skip
MESHES = ((("data", 8),), (("data", 4), ("model", 2)), (("a", 2), ("b", 2), ("c", 2)), (("data", 2), ("model", 3)))
DEVICES = ("tpu_v3", "tpu_v5e", "tpu_v5p", "h100", "a100_80gb", "cpu_host")
NATIVE = ("attention", "mlp", "convolution", "recurrent", "norm")
"""Blocks of a framework's own layers, in `native.py`."""


@dataclass(frozen=True)
class Drawn:
    """A model, its step and the schedules it is lowered under.

    blocks     names, in the order of one period; the model has `depth` periods
    native     the blocks are those of the framework's own layers
    zero       a dim of no element: "", "batch", "length" or "width"
    schedules  names from `SCHEDULES`, each lowered on its own
    """

    seed: int
    framework: str
    blocks: tuple[str, ...]
    native: bool
    depth: int
    stack: str
    ends: str
    inputs: str
    head: str
    step: str
    optimizer: str
    accumulate: int
    ema: bool
    remat: bool
    dtype: str
    batch: int
    length: int
    width: int
    heads: int
    zero: str
    mesh: tuple[tuple[str, int], ...]
    device: str
    schedules: tuple[str, ...]

    @staticmethod
    def of(seed: int, deep: bool | None = None) -> Drawn:
        """The model of a seed; every fourth is deep, unless it is said."""
        rng = np.random.default_rng([seed, 7])
        deep = seed % 4 == 3 if deep is None else deep

        def one(options):
            return options[rng.integers(len(options))]

        framework = one(FRAMEWORKS)
        native = framework != "plain" and rng.random() < 0.5
        names = NATIVE if native else sorted(BLOCKS)
        blocks = tuple(one(names) for _ in range(int(rng.choice([1, 1, 2, 2, 3]))))
        heads = int(one((1, 2, 4)))
        odd = rng.random() < 0.2
        width = heads * int(one((128, 192)) if deep else one((2, 4, 8)))
        depth = int(rng.integers(6, 41)) if deep else int(rng.integers(1, 5))
        bare = rng.random() < 0.2
        return Drawn(
            seed=seed,
            framework=framework,
            blocks=blocks,
            native=native,
            depth=max(depth // len(blocks), 1),
            stack=one(STACKS),
            ends=one(ENDS),
            inputs=one(INPUTS),
            head="bare" if bare else one(HEADS),
            step=one(("forward", "gradient")) if bare else one(STEPS),
            optimizer=one(OPTIMIZERS),
            accumulate=int(one((1, 1, 1, 2, 3))),
            ema=rng.random() < 0.2,
            remat=rng.random() < 0.2,
            dtype=one(DTYPES),
            batch=int(one((1, 3, 7, 13)) if odd else one((256, 384)) if deep else one((8, 24))),
            length=int(one((1, 5, 17)) if odd else one((64, 128, 196)) if deep else one((8, 12, 16))),
            width=width,
            heads=heads,
            zero="" if rng.random() < 0.88 else one(("batch", "length")),
            mesh=one(MESHES),
            device=one(DEVICES),
            schedules=tuple(dict.fromkeys(one(SCHEDULES) for _ in range(3))),
        )

    @property
    def runs(self) -> bool:
        """True if it is small enough to be run and compared."""
        return self.batch * self.length * self.width <= 24 * 17 * 32 and self.depth * len(self.blocks) <= 6

    @property
    def dims(self) -> tuple[int, int, int]:
        """Batch, length and width, with the dim that has no element."""
        return (
            0 if self.zero == "batch" else self.batch * self.accumulate,
            0 if self.zero == "length" else self.length,
            self.width,
        )


SIMPLEST = {
    "framework": "plain", "native": False, "stack": "list", "ends": "ends",
    "inputs": "vectors", "head": "mean", "step": "forward",
    "optimizer": "sgd", "accumulate": 1, "ema": False, "remat": False, "dtype": "float32", "zero": "", "heads": 1,
    "mesh": MESHES[0],
}  # fmt: skip
"""The plainest entry of each field that has one."""


def smaller(drawn: Drawn) -> Iterator[Drawn]:
    """Models with one thing less, the largest savings first."""
    for schedule in drawn.schedules:
        if len(drawn.schedules) > 1:
            yield replace(drawn, schedules=(schedule,))
    for depth in dict.fromkeys((1, drawn.depth // 2, drawn.depth - 1)):
        if 0 < depth < drawn.depth:
            yield replace(drawn, depth=depth)
    if len(drawn.blocks) > 1:
        for i in range(len(drawn.blocks)):
            yield replace(drawn, blocks=drawn.blocks[:i] + drawn.blocks[i + 1 :])
    for field in fields(drawn):
        plain = SIMPLEST.get(field.name, getattr(drawn, field.name))
        if plain != getattr(drawn, field.name) and not (field.name == "framework" and drawn.native):
            yield replace(drawn, **{field.name: plain})
    if drawn.native and drawn.framework != "linen":
        yield replace(drawn, framework="linen")
    if drawn.schedules != ("none",):
        yield replace(drawn, schedules=("none",))
    if len(drawn.blocks) == 1 and not drawn.native and drawn.blocks != ("squashed",):
        yield replace(drawn, blocks=("squashed",))
