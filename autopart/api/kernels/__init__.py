"""Kernels that a program calls: how each kind says how it may be sliced.

kernel.py       `ap.kernel`: a function with a twin in plain jax, or with a rule
twin.py         what holds for the twin, found by propagation and compared op by op with the twin of a slice
pallas_call.py  a Pallas call, by its grid and block specs: grid_digits.py has what index maps make of steps, and
                running_sums.py what steps pass on, body_dims.py along which dims its blocks may be cut
named_*.py      Pallas calls that say too little, and functions, by name
partitioned.py  `custom_partitioning`, by its own sharding rule
cudnn.py, scaled_products.py   cuDNN's attention and products with scales, by name
"""
