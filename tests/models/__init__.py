"""Models as their users write them (flax, equinox, haiku, plain JAX), each with the schedules it is tested under."""
