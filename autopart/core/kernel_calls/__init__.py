"""Calls of kernels: one op each, whose mappings and work stand on it, and whose body is kept in the process.

    flash(q, k, v)                        a pallas_call, cuDNN's attention, what `ap.kernel` wraps
    custom_call @autopart_kernel(q, k, v) 0   in the unpartitioned and in the device-local module; body 0
        {name "flash", rule "b h s d, b h t d, b h t d -> b h s d; tile b=4 h=8; reduce -", matrix_flop, vector_flop}
    the kernel, traced at local shapes    in what XLA compiles, where the device-local module is lowered

The op says all that propagation, estimates and passes need (`sharding_rule.py`; `core/ops/rules/kernel_call.py` reads
it), so search, plans, recomputation and microbatches see an op as any other. Its body waits beside the host callbacks
(`core/doors/host_callbacks.py`) until a device's share of it is known.
"""
