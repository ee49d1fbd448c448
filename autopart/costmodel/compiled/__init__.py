"""The device's compiler on paper: passes with XLA's names over a local module that carries layouts."""
