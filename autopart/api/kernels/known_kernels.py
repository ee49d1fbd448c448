"""Which primitives are calls of kernels, and who reads each."""

from __future__ import annotations

import inspect

from autopart.api.kernels.cudnn import cudnn_attention
from autopart.api.kernels.kernel_primitive import kernel_p, read_called
from autopart.api.kernels.named_pallas import NAMED
from autopart.api.kernels.pallas_call import pallas_kernel
from autopart.api.kernels.partitioned import partitioned_function
from autopart.api.kernels.scaled_products import scaled_product
from autopart.core.importer.host_calls import Kernels

KERNELS: Kernels = {
    "pallas_call": pallas_kernel,
    "custom_partitioning": partitioned_function,
    "dot_product_attention_fwd_wrapper": cudnn_attention,
    "dot_product_attention_bwd_wrapper": cudnn_attention,
    "scaled_matmul_wrapper": scaled_product,
    kernel_p.name: read_called,
}
"""By the names of jax's primitives."""


def kernels_table() -> str:
    """A line for each kind of kernel: where its rule is, and what that file says first."""
    files = dict.fromkeys(map(inspect.getmodule, [*KERNELS.values(), *NAMED.values()]))
    lines = (f"  {(inspect.getdoc(file) or '').partition(chr(10))[0]}" for file in files)
    return "\n".join(["kernels, which are ops of a program by themselves (docs/kernels.md)", *lines])
