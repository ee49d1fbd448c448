"""Do convolutions of few images take what the TPU compiler says, and only those?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.costmodel.simulator.facts.image_uses import IN_PARTS, SUMMED_UP
from experiments.convolution_grids import NEAR, estimated_us, kept_us, summed_up
from experiments.few_images.__main__ import FOLDER, groups
from experiments.few_images.cases import Case, conv
from tests.prompt import slow

KEPT = kept_us(FOLDER)


def _simulation(function, *shapes, device: str = "tpu_v5e", mesh: dict[str, int] | None = None, schedule=()):
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return ap.jit(function, ap.Mesh(mesh or {"x": 1}, device=device), list(schedule)).lower(*arguments).estimate


def _copies(estimate) -> float:
    return float(estimate.simulation.arrays.padding["copies"].sum())


IMAGES, WEIGHTS = (4, 32, 32, 128), (3, 3, 128, 128)


@pytest.mark.parametrize(
    ("name", "within", "least", "geomean"),
    [
        slow("fitted", 0.8, 0.4, 0.9),
        ("held out", 0.55, 0.55, 0.9),
        slow("nets", 0.75, 0.5, 0.8),
        ("nets, forward", 0.95, 0.8, 0.85),
    ],
)
def test_estimates_are_as_near_the_compilers_as_the_page_says(name: str, within: float, least: float, geomean: float):
    programs = [p for p in groups()[name] if p.name in KEPT]
    found = summed_up([estimated_us(p) / KEPT[p.name] for p in programs])
    assert found["within"] >= within
    assert found["least"] >= least
    assert geomean <= found["geomean"] <= 1.1


@pytest.mark.parametrize("kind", ["plain", "silu", "norm", "group", "residual"])
@pytest.mark.parametrize("back", [False, True])
def test_three_convolutions_of_four_images_take_what_the_compiler_says(kind: str, back: bool):
    case = Case(4, kind=kind, back=back)
    assert NEAR[0] < estimated_us(case) / KEPT[case.name] < NEAR[1]


@pytest.mark.parametrize(
    ("images", "window", "device", "cut"),
    [
        ((7, 32, 32, 128), 3, "tpu_v5e", True),
        ((8, 32, 32, 128), 3, "tpu_v5e", False),
        ((2, 32, 32, 128), 3, "tpu_v3", False),
        ((1, 32, 32, 128), 3, "tpu_v3", True),
        ((4, 32, 32, 128), 3, "h100", False),
        ((4, 13, 13, 128), 3, "tpu_v5e", False),
        ((4, 14, 14, 128), 3, "tpu_v5e", True),
        ((4, 34, 34, 128), 7, "tpu_v5e", False),
        ((4, 35, 35, 128), 7, "tpu_v5e", True),
    ],
)
def test_few_images_are_cut_where_their_parts_are_as_long_as_a_border(images, window: int, device: str, cut: bool):
    found = _simulation(conv, images, (window, window, 128, 128), device=device)
    assert (_copies(found) > 0) == cut


def test_images_a_device_count_not_those_of_the_batch():
    batch = ap.ManualPartition({"x": 0}, axis="x", name="BP")

    def step(x, w):
        return conv(x, w)

    many = _simulation(step, (32, 32, 32, 128), WEIGHTS, mesh={"x": 4}, schedule=[batch])
    few = _simulation(step, (32, 32, 32, 128), WEIGHTS, mesh={"x": 8}, schedule=[batch])
    assert _copies(many) == 0 < _copies(few)


def test_a_chain_of_convolutions_enters_once():
    def chain(x, w, times: int):
        for _ in range(times):
            x = jax.nn.silu(conv(x, w))
        return x

    one, two, three = (_copies(_simulation(lambda x, w, n=n: chain(x, w, n), IMAGES, WEIGHTS)) for n in (1, 2, 3))
    assert two - one == three - two == 1


def test_a_sum_over_all_reads_parts_and_a_sum_over_space_whole_images():
    def summed(dims):
        def run(x, w):
            return conv(x, w).sum(dims)

        found = _simulation(run, IMAGES, WEIGHTS)
        return SUMMED_UP in found.simulation.program_arrays.uses["reads"], _copies(found)

    (over_all, all_copies), (over_space, space_copies) = summed((0, 1, 2)), summed((1, 2))
    assert over_all
    assert not over_space
    assert space_copies == all_copies + 1


def test_what_does_not_vary_along_the_parts_leaves_them_alone():
    def run(x, w, by_image, by_place):
        y = conv(x, w)
        return (y * by_image[:, None, None, :]).sum((0, 1, 2)), (y * by_place[None, None, :, None]).sum((0, 1, 2))

    found = _simulation(run, IMAGES, WEIGHTS, (4, 128), (32,))
    assert IN_PARTS in found.simulation.program_arrays.uses["reads"]
    assert _copies(found) == _copies(_simulation(conv, IMAGES, WEIGHTS)), "the product by place reads whole images"


def test_seconds_of_many_images_are_as_they_were():
    few, many = (_simulation(conv, (n, 32, 32, 128), WEIGHTS) for n in (7, 8))
    assert few.compute_s > many.compute_s
    assert (many.simulation.arrays.padding["walked"] == 1).all()


def _written(function, *shapes) -> int:
    return int(_simulation(function, *shapes).simulation.arrays.images["is_written"].sum())


def test_parts_that_meet_longer_ones_are_cut_again_and_only_then():
    """Of 256 places a window of 3 x 3 leaves parts of 33; what comes from half as many places has parts of 34."""

    def shortcut(x, w, down, stride: int):
        high, low = jax.nn.relu(conv(x, w)), conv(x, down, stride)
        form = ("NHWC", "HWIO", "NHWC")
        up = jax.lax.conv_transpose(low, down, (stride, stride), "SAME", dimension_numbers=form)
        return conv(up + high, w)

    shapes = (2, 256, 256, 64), (3, 3, 64, 64), (2, 2, 64, 64)
    assert _written(lambda *a: shortcut(*a, 2), *shapes) == 1
    assert _written(lambda *a: shortcut(*a, 1), *shapes) == 0


def _places(function, *shapes) -> list[list[int]]:
    """Of all ops that leave four dims, in order: the third, and the places of a part along it; 0 for whole images."""
    estimate = _simulation(function, *shapes)
    program, images = estimate.simulation.local.program, estimate.simulation.arrays.images
    found = []
    for op in range(program.op_count):
        value, shape = int(program.result_ptr[op]), program.spec(op).results[0].shape
        if len(shape) == 4 and shape[3] == WEIGHTS[3] and shape[0] == IMAGES[0]:
            part = images["part"][value] if images["cut_by"][value] >= 0 else 0.0
            found.append([int(shape[2]), round(part * shape[2])])
    return found


def _pooled(x, window: int, padding):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, window, window, 1), (1, 2, 2, 1), padding)


AROUND = ((0, 0), (1, 1), (1, 1), (0, 0))


@pytest.mark.parametrize(
    ("window", "padding", "ahead", "pooled", "back"),
    [(2, "VALID", 6, 3, 6), (3, "SAME", 6, 3, 6), (3, AROUND, 5, 0, 0)],
)
def test_pools_and_their_gradients_are_in_parts_if_they_begin_with_the_image(window, padding, ahead, pooled, back):
    """Of 32 places 34 are seen: 5 for each part without a pool, 6 ahead of one that begins with each part."""

    def net(x, w):
        return (_pooled(conv(x, w), window, padding) ** 2).sum()

    found = _places(jax.grad(net, 1), IMAGES, WEIGHTS)
    assert [32, ahead] in found
    assert [16, pooled] in found
    assert found[-1] == [32, back]


@pytest.mark.parametrize(("size", "down"), [(32, [16, 2]), (30, [15, 2])])
def test_windows_with_strides_cut_again_what_is_in_parts_of_no_whole_strides(size: int, down: list[int]):
    shapes = (4, size, size, 128), WEIGHTS
    assert _places(lambda x, w: conv(conv(x, w), w, 2), *shapes)[-1] == down
    assert _written(lambda x, w: conv(conv(x, w), w, 2), *shapes) == (size == 32)


@pytest.mark.parametrize(("window", "masked"), [(3, 1), (1, 0)])
def test_the_gradient_of_1x1_is_masked_where_parts_are_longer_than_images(window: int, masked: int):
    def net(x, w, last):
        return (conv(jnp.tanh(conv(x, w)), last) ** 2).sum()

    shapes = IMAGES, (window, window, 128, 128), (1, 1, 128, 128)
    assert _written(jax.grad(net, 2), *shapes) == masked


@pytest.mark.parametrize(("over", "written"), [((1, 2), 2), ((0, 1, 2), 0)])
def test_what_differs_by_image_is_spread_out_for_its_parts(over: tuple[int, ...], written: int):
    def normed(x, w):
        y = conv(x, w)
        y = y - y.mean(over, keepdims=True)
        return conv(y * jax.lax.rsqrt((y * y).mean(over, keepdims=True) + 1.0), w)

    assert _written(normed, IMAGES, WEIGHTS) == written
