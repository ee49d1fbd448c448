"""Is a distributed type what the paper says it is: its text, its well-formedness, its base offsets?"""

from __future__ import annotations

import numpy as np
import pytest

from autopart.core.op import MAX, SUM
from autopart.spmd.redistribution import DistributedType, DistributedTypeError, SubAxis
from tests.redistribution.cases import typed

MESH = {"x": 4, "y": 6}


@pytest.mark.parametrize(
    "text",
    ["[12, 12]", "[3{x}12, 2{y}12]", "[1{y,x}24]", "[1{x,y}24]", "[6{x:(2)2}12, 4{y:(1)3}12]", "[]",
     "[4] sum{x}", "[4] sum{x} max{y}", "[3{x}12] sum{y:(1)2}", "[2{y:(1)3,x:(2)2}12]"],
)  # fmt: skip
def test_text_round_trips(text):
    assert str(typed(text, MESH)) == text


def test_paper_spellings_are_read():
    mesh = {"devices": 32, "c": 2}
    assert str(typed('[8{"devices"}256, 1024]', mesh)) == "[8{devices}256, 1024]"
    assert str(typed("[184{c:2}368, 8{}8]", mesh)) == "[184{c}368, 8]"


def test_device_map_round_trips():
    text = "[2{x}4] @(1,0)"
    assert str(typed(text, {"x": 2})) == text


def test_axes_are_minor_to_major_in_text_and_major_to_minor_in_of():
    assert DistributedType.of((24,), [("x", "y")], MESH) == typed("[1{y,x}24]", MESH)


def test_neighbouring_parts_of_an_axis_are_one():
    parts = (SubAxis("x", 2, 2), SubAxis("x", 2, 1))
    assert DistributedType.of((12,), [parts], MESH) == typed("[3{x}12]", MESH)
    assert str(DistributedType.of((12,), [parts[::-1]], MESH)) == "[3{x:(2)2,x:(1)2}12]"


def test_pending_reductions_are_kept_in_order():
    assert str(DistributedType.of((8,), [()], MESH, [("x", SUM), ("y", MAX)])) == "[8] sum{x} max{y}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[3{x}12, 3{x}12]", 'axis "x" is used twice'),
        ("[3{x}12] sum{x}", 'axis "x" is used twice'),
        ("[6{x:(1)2}12, 3{x}12]", 'axis "x" is used twice'),
        ("[3{z}12]", 'axis "z" is not in the mesh'),
        ("[3{x}13]", "dim 0 of (13,) cannot be cut in 4 parts"),
        ("[4{x}12]", "says tiles of [4]"),
        ("[4{x:(1)3}12]", '"x" has no part of size 3 above 1'),
        ("[4{x}12", "is not a distributed type"),
        ("[3{x:6}12]", 'axis "x" is given size 6'),
        ("[4] avg{x}", 'no reduction is called "avg"'),
        ("[12] @(0,1)", "the device map is not a permutation"),
    ],
)
def test_malformed_types_say_what_is_wrong(text, says):
    with pytest.raises(DistributedTypeError) as error:
        typed(text, MESH)
    assert says in str(error.value)


def test_base_offsets_of_figure_1():
    """[64{xdev}256, 1024] on {xdev:4, ydev:8}: rows of devices hold the same tile."""
    offsets = typed("[64{xdev}256, 1024]", {"xdev": 4, "ydev": 8}).base_offsets().reshape(4, 8, 2)
    assert (offsets[..., 0] == np.arange(4)[:, None] * 64).all()
    assert (offsets[..., 1] == 0).all()


def test_base_offsets_follow_the_order_of_axes():
    """[8{x,y}32]: first two tiles over y, then each in two over x."""
    mesh = {"x": 2, "y": 2}
    assert typed("[8{x,y}32]", mesh).base_offsets()[:, 0].tolist() == [0, 16, 8, 24]
    assert typed("[8{y,x}32]", mesh).base_offsets()[:, 0].tolist() == [0, 8, 16, 24]


@pytest.mark.parametrize("text", ["[3{x}12, 2{y}12]", "[1{y,x}24, 2]", "[2{y:(1)3,x:(2)2}12, 6{x:(1)2}12]"])
def test_tiles_of_a_well_formed_type_cover_the_array(text):
    """Lemma 4.2: the base offsets are all multiples of the tile below the global size."""
    kind = typed(text, MESH)
    every = np.stack(
        np.meshgrid(*(np.arange(0, n, t) for n, t in zip(kind.shape, kind.local_shape, strict=True)), indexing="ij"), -1
    ).reshape(-1, len(kind.shape))
    assert np.array_equal(np.unique(kind.base_offsets(), axis=0), every)


def test_a_device_map_moves_tiles_between_devices():
    mesh = {"x": 4}
    assert typed("[1{x}4] @(2,0,3,1)", mesh).base_offsets()[:, 0].tolist() == [1, 3, 0, 2]
