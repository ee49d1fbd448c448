"""Models computed in bf16 with parameters in f32, as people run them on TPU; see the README."""
