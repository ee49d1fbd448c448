"""Writes the files beside it: a PyTorch model as StableHLO, and what PyTorch computes with it.

pip install "torch==2.9.*" torchax "jax==0.10.2" && python make.py

`tests/api/test_other_frontends.py` draws the same parameters and tokens.
"""

from pathlib import Path

import jax
import numpy as np
import torch
from torchax.export import exported_program_to_jax

HERE = Path(__file__).parent


class Encoder(torch.nn.Module):
    """Embedding, two encoder layers, and logits by the embedding."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(64, 32)
        layer = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
        self.blocks = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(32, 4, 64, **layer) for _ in range(2))
        self.norm = torch.nn.LayerNorm(32)

    def forward(self, tokens):
        h = self.embed(tokens)
        for block in self.blocks:
            h = block(h)
        return self.norm(h) @ self.embed.weight.T


def main() -> None:
    encoder, rng = Encoder().train(), np.random.default_rng(0)
    with torch.no_grad():
        for parameter in encoder.parameters():
            drawn = rng.normal(size=tuple(parameter.shape)).astype("f4") * 0.2
            parameter.copy_(torch.from_numpy(drawn))
        tokens = torch.from_numpy(rng.integers(0, 64, (8, 6)))
        np.save(HERE / "encoder_logits.npy", encoder(tokens).numpy())
    parameters, fun = exported_program_to_jax(torch.export.export(encoder, (tokens,)))
    lowered = jax.jit(lambda *a: fun(list(a[:-1]), (a[-1],))[0]).lower(
        *parameters, jax.ShapeDtypeStruct((8, 6), "int32")
    )
    (HERE / "encoder.mlir").write_text(lowered.as_text())


if __name__ == "__main__":
    main()
