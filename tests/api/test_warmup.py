"""Is anything left to compile after `warmup`?"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from autopart.__main__ import main

SEARCH = """
import jax, jax.numpy as jnp
from numba.core import event
import autopart as ap

class Compiled(event.Listener):
    names = []
    def on_start(self, event):
        self.names.append(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event):
        pass

event.register("numba:compile", Compiled())

def step(w, x):
    def loss(w):
        return jnp.sum(jnp.tanh(x @ w["a"]) @ w["b"])
    return jax.tree.map(lambda p, g: p - g, w, jax.grad(loss)(w))

w = {"a": jnp.ones((512, 1024)), "b": jnp.ones((1024, 512))}
for device in ("tpu_v4", "b200"):
    auto = ap.AutomaticPartition(["x", "y"], budget=ap.Budget(40), cache=False, progress=False)
    mesh = ap.Mesh({"x": 4, "y": 2}, device=device)
    ap.jit(step, mesh, [auto], donate_argnums=0).lower(w, jnp.ones((256, 512))).estimate.top(3)
print("compiled:", Compiled.names)
"""


def test_warmup_says_how_long_it_took(capsys):
    assert main(["warmup"]) == 0
    assert capsys.readouterr().out.startswith("kernels are compiled, or were:")


@pytest.mark.slow
def test_after_warmup_another_process_compiles_nothing(tmp_path):
    def run(*arguments: str) -> str:
        env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "JAX_PLATFORMS": "cpu"}
        return subprocess.run([sys.executable, *arguments], env=env, check=True, capture_output=True, text=True).stdout

    run("-m", "autopart", "warmup")
    assert run("-W", "ignore", "-c", SEARCH).splitlines()[-1] == "compiled: []"
