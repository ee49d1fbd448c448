"""Is what an op comes from the user's own line, however deep in a library the op is written?"""

from __future__ import annotations

import inspect

import flax.linen as nn
import jax
import numpy as np

import autopart as ap

MESH = ap.Mesh({"batch": 4})
X = np.ones((8, 4), "f4")


class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.LayerNorm()(nn.Dense(8, name="up")(x))


def lines_of(fun, *args):
    return ap.jit(fun, MESH).lower(*args).as_text("hlo", lines=True).splitlines()


def test_an_op_of_a_library_has_the_line_that_called_it_and_its_modules():
    params = jax.eval_shape(Model().init, jax.random.key(0), X)
    (dot,) = [line for line in lines_of(lambda p, x: Model().apply(p, x), params, X) if "dot_general" in line]
    line = inspect.getsourcelines(Model.__call__)[1] + 2
    assert f"test_source_lines.py:{line} " in dot
    assert dot.endswith("Model/up/dot_general")


def test_an_op_has_the_innermost_of_the_users_lines():
    def inner(x):
        return x * 2

    (multiply,) = [line for line in lines_of(lambda x: inner(x), X) if "multiply" in line]
    assert f"test_source_lines.py:{inner.__code__.co_firstlineno + 1} " in multiply


def test_text_without_lines_has_none():
    assert "//" not in ap.jit(lambda x: x * 2, MESH).lower(X).as_text()
