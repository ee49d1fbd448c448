"""Groups of devices that a collective names by axes of a mesh are the devices that the mesh has there."""

from __future__ import annotations

import numpy as np
import pytest

from autopart.core.doors.jax_internals import parse_module
from autopart.core.importer.replica_groups import list_groups

MODULE = """
sdy.mesh @m = <["a"=2, "b"=4]DEVICES>
func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %y = "stablehlo.all_to_all"(%x) <{
    channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, concat_dimension = 0 : i64,
    replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @m, axes = [AXES]>,
    split_count = 2 : i64, split_dimension = 0 : i64}> : (tensor<8xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}"""

A, B = '#stablehlo.axis_ref<name = "a">', '#stablehlo.axis_ref<name = "b">'
MAJOR_OF_B, MINOR_OF_B = (f'#stablehlo.axis_ref<name = "b", sub_axis_info = ({before})2>' for before in (1, 2))


@pytest.mark.parametrize(
    ("axes", "groups"),
    [
        ([A], [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ([B], [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ([A, B], [[0, 1, 2, 3, 4, 5, 6, 7]]),
        ([B, A], [[0, 4, 1, 5, 2, 6, 3, 7]]),
        ([MAJOR_OF_B], [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ([MINOR_OF_B, A], [[0, 4, 1, 5], [2, 6, 3, 7]]),
    ],
)
@pytest.mark.parametrize("devices", [None, [7, 6, 5, 4, 3, 2, 1, 0]])
def test_groups_by_axes_are_listed_in_the_order_of_the_axes(axes, groups, devices):
    text = MODULE.replace("AXES", ", ".join(axes))
    module = parse_module(text.replace("DEVICES", "" if devices is None else f", device_ids={devices}"))
    collective = list(module.body.operations)[-1].regions[0].blocks[0].operations[0].operation
    list_groups(collective)
    wanted = np.array(groups) if devices is None else np.array(devices)[groups]
    assert np.asarray(collective.attributes["replica_groups"]).tolist() == wanted.tolist()
