"""Is a program file with flipped bits, a cut end or moved pieces either read or refused, in bounded time?"""

from __future__ import annotations

import collections
import functools
import gzip
import io
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.core.doors.jax_internals import parse_module
from autopart.core.importer.text_scan import needs_child
from tests.errors.damage import damaged

SERVER = Path(__file__).with_name("fuzz_server.py")
FEW = int(os.environ.get("AUTOPART_FUZZ", "20"))
"""Damaged copies of each module; AUTOPART_FUZZ=3000 tries more, at some 0.2 s each."""


@functools.cache
def text() -> bytes:
    """A step with a loop, a branch, calls, constants, a reduction, donation and locations."""

    def step(w, x):
        def body(carry, row):
            return jnp.where(row.sum() > 0, carry + row, carry * 2), row.max()

        total, most = jax.lax.scan(body, jnp.zeros(8), x)
        total = jax.lax.cond(total[0] > 1, jnp.sin, lambda v: v + 1, total)
        return w - 0.1 * jax.nn.softmax(w @ total)[:, None], jnp.sort(most), jnp.arange(4.0) + ap.tag("t", total[:4])

    lowered = jax.jit(step, donate_argnums=0).lower(jnp.ones((8, 8)), jnp.ones((4, 8)))
    return lowered.as_text(debug_info=True).encode()


@functools.cache
def bytecode() -> bytes:
    out = io.BytesIO()
    parse_module(text()).operation.write_bytecode(out)
    return out.getvalue()


def tried(modules: list[bytes]) -> list[tuple[int, bool, str]]:
    """(exit code, whether the parent would read it itself, verdict) of each, from processes of their own."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, str(SERVER)], input=b"".join(len(m).to_bytes(8, "big") + m for m in modules),
        stdout=subprocess.PIPE, env=environment, check=True,
    )  # fmt: skip
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def check(modules: list[bytes]) -> collections.Counter[str]:
    """Checks each; counts the outcomes."""
    found: collections.Counter[str] = collections.Counter()
    for number, (code, read_here, answer) in enumerate(tried(modules)):
        assert code <= 0, f"case {number}: {answer}"
        assert code == 0 or not read_here, f"case {number} kills the process that loads it: signal {-code}"
        found["killed" if code < 0 else "refused" if json.loads(answer)[0] else "read"] += 1
    return found


def test_damaged_text_is_read_or_refused():
    found = check(list(damaged(text(), FEW, seed=1)))
    assert found["refused"] > FEW / 4
    assert not needs_child(text())


def test_marks_for_the_compiler_of_another_kind_name_nothing():
    marked = text().replace(b"mhlo.frontend_attributes = {", b'mhlo.frontend_attributes = "x", other = {', 1)
    assert marked != text()
    assert check([marked])["read"] == 1


def test_damaged_bytecode_is_read_or_refused_or_dies_in_a_child():
    found = check(list(damaged(bytecode(), FEW, seed=2)))
    assert found["refused"] + found["killed"] > FEW / 4
    assert needs_child(bytecode())


def test_damaged_gzip_is_read_or_refused(tmp_path):
    path, packed, refused = tmp_path / "m.mlir.gz", gzip.compress(text(), mtime=0), 0
    for data in damaged(packed, 4 * FEW, seed=3):
        path.write_bytes(data)
        try:
            unpacked = zlib.decompress(data, 31)
        except zlib.error:
            unpacked = b"" if data[:2] == b"\x1f\x8b" else data
        if unpacked and (needs_child(unpacked) or unpacked == text()):
            continue  # seconds each; the child is tried below
        try:
            ap.load(path)
        except ap.ProgramError:
            refused += 1
    assert refused > FEW


def killer() -> bytes:
    """Bytecode in which two functions are called "a\\xffq": MLIR's complaint about that is not UTF-8."""
    module = parse_module('func.func @"aXq"() { return } func.func @"bXq"() { return }')
    out = io.BytesIO()
    module.operation.write_bytecode(out)
    return out.getvalue().replace(b"aXq", b"a\xffq").replace(b"bXq", b"a\xffq")


@pytest.mark.slow
def test_bytecode_that_kills_the_process_that_parses_it_is_a_program_error(tmp_path):
    ((code, _, _),) = tried([killer()])
    assert code < 0
    path = tmp_path / "m.mlirbc"
    path.write_bytes(killer())
    with pytest.raises(ap.ProgramError, match="MLIR ended the process that tried it"):
        ap.load(path)


@pytest.mark.slow
def test_sound_bytecode_is_loaded_by_way_of_a_child(tmp_path):
    path = tmp_path / "m.mlirbc"
    path.write_bytes(bytecode())
    loaded, trusted = ap.load(path).traced.program, ap.load(path, trusted=True).traced.program
    assert loaded.fingerprint == trusted.fingerprint


@pytest.mark.slow
def test_thousands_of_damaged_modules():
    print(check(list(damaged(text(), 3000, seed=5))), check(list(damaged(bytecode(), 3000, seed=6))))
