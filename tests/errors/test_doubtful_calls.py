"""Is what is legal but hardly meant said, by a remark or a warning?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import autopart as ap
from tests.errors.mistaken import ARGS, BP, FOLDER, PARAMS, file, lower, search, shape, step, tile


def remarks(*schedule, fun=step, args=ARGS, **options):
    return str(lower(*schedule, fun=fun, args=args, **options).metadata)


def own_mesh(**kind):
    return NamedSharding(jax.make_mesh((4, 2), ("data", "model")), P("data"), **kind)


BIG = np.random.default_rng(0).standard_normal((2048, 2048)).astype("f4")

SAID = [
    ("state that is not donated", lambda: remarks(BP), "donate_argnames=('opt_state', 'params') saves"),
    (
        "an argument donated for nothing",
        lambda: remarks(fun=lambda x, y: y + x.sum(), args=(shape(8), shape(4)), donate_argnums=0),
        "x is donated, and no result has the type",
    ),
    (
        "another kind of memory",
        lambda: remarks(in_shardings=(None, None, own_mesh(memory_kind="pinned_host"))),
        "memory_kind 'pinned_host' is kept",
    ),
    (
        "recomputation without a backward pass",
        lambda: remarks(ap.Recompute("matmuls"), fun=lambda x: jnp.tanh(x) + 1, args=(shape(8),)),
        "nothing is computed twice",
    ),
    (
        "an axis that divides nothing",
        lambda: remarks(tile({"params": 0}), fun=lambda params, x: x * 2, args=(PARAMS, shape(8, 8))),
        "divides",
    ),
    ("nothing tiled", lambda: remarks(), "left replicated"),
]


@pytest.mark.parametrize(("make", "says"), [row[1:] for row in SAID], ids=[row[0] for row in SAID])
def test_what_is_legal_but_hardly_meant_is_said(make, says):
    assert says in make()


WARNED = [
    ("a large array closed over", lambda: lower(fun=lambda x: x @ BIG, args=(shape(8, 2048),)), "closes over 16.8 MB"),
    ("nothing to resume", lambda: lower(search(resume=FOLDER / "none.jsonl")), "nothing to resume"),
    ("a file as cache", lambda: lower(search(cache=file("cache", ""))), "not cached"),
]


@pytest.mark.parametrize(("make", "says"), [row[1:] for row in WARNED], ids=[row[0] for row in WARNED])
def test_what_goes_wrong_beside_the_result_is_warned_of(make, says):
    with pytest.warns(UserWarning, match=says):
        make()


def test_a_name_that_autopart_does_not_have_is_answered_with_the_nearest():
    with pytest.raises(AttributeError, match="ManualPartition"):
        _ = ap.ManualPartion
