"""PartIR in one file: tile actions, propagation, and the collectives that follow, over einsums in NumPy.

    python docs/partir_in_one_file.py

The idea of the paper (PartIR: Composing SPMD Partitioning Strategies for Machine Learning), small enough to read in one
sitting. autopart does the same over all of StableHLO; `tests/examples/test_partir_in_one_file.py` holds the two against
each other. Here is the whole of it:

    h = matmul(x, w1)      "bi,ij->bj"          each letter of an op is a loop that it could be computed in
    tile x on dim 0 over "batch"                x is held in parts: part k on the k-th device along the axis
    propagate                                   x's dim 0 is letter b: the op becomes a loop over "batch" on b, so h is
                                                tiled on dim 0 too, and so on, forwards and backwards
    lower                                       each device runs one step of each loop; where a value is produced in
                                                another way than it is read, a collective stands between the two
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

SUM = "sum"
"""How a value is produced whose op loops over a letter that is not in the result: each device has a summand."""

WHOLE: None = None


# ---- the program


@dataclass(frozen=True)
class Op:
    """result = compute(*operands); `letters` names the dims of each operand and of the result, as einsum does."""

    result: str
    operands: tuple[str, ...]
    letters: str
    compute: Callable[..., np.ndarray]

    @property
    def operand_letters(self) -> list[str]:
        """The dims of each operand."""
        return self.letters.split("->")[0].split(",")

    @property
    def result_letters(self) -> str:
        """The dims of the result."""
        return self.letters.split("->")[1]


@dataclass
class Program:
    """Ops in order; `ties` says which output is the next value of which argument, so that the two are held alike."""

    shapes: dict[str, tuple[int, ...]]
    outputs: list[str]
    ops: list[Op] = field(default_factory=list)
    ties: dict[str, str] = field(default_factory=dict)

    def einsum(self, result: str, letters: str, *operands: str) -> None:
        """A product, with sums over the letters that the result lacks."""
        self._add(Op(result, operands, letters, lambda *a: np.einsum(letters, *a)))

    def map(self, result: str, compute: Callable[..., np.ndarray], *operands: str) -> None:
        """An elementwise op."""
        dims = "abcdefgh"[: len(self.shapes[operands[0]])]
        self._add(Op(result, operands, ",".join([dims] * len(operands)) + "->" + dims, compute))

    def _add(self, op: Op) -> None:
        pairs = zip(op.operands, op.operand_letters, strict=True)
        size = {letter: n for name, dims in pairs for letter, n in zip(dims, self.shapes[name], strict=True)}
        self.shapes[op.result] = tuple(size[letter] for letter in op.result_letters)
        self.ops.append(op)


# ---- PartIR:Core: which loops there are


class Partitioning:
    """What is decided: for every mesh axis, the dim on which arguments are tiled and the letter over which ops loop."""

    def __init__(self, program: Program, mesh: dict[str, int]):
        self.program, self.mesh = program, mesh
        self.tiled: dict[tuple[str, str], int] = {}
        self.kept: set[tuple[str, str]] = set()
        self.loop: dict[tuple[str, str], str] = {}

    def tile(self, value: str, dim: int, axis: str) -> None:
        """The action tile<value, dim, axis>. It can be taken once for a value and an axis."""
        if (value, axis) not in self.tiled and (value, axis) not in self.kept:
            self.tiled[value, axis] = dim

    def keep(self, value: str, axis: str) -> None:
        """The action atomic<value, axis>: nothing tiles the value along the axis from now on."""
        self.kept.add((value, axis))

    def produced(self, value: str, axis: str) -> int | str | None:
        """A dim, SUM or WHOLE: what each device along the axis has of a value when it is made."""
        op = next((o for o in self.program.ops if o.result == value), None)
        letter = self.loop.get((value, axis))
        if op is None or letter is None:
            return self.tiled.get((value, axis)) if op is None else WHOLE
        return op.result_letters.index(letter) if letter in op.result_letters else SUM

    def held(self, value: str, axis: str) -> int | None:
        """As `produced`, after what is pending was reduced, unless an action tiles it: then into those tiles."""
        made = self.produced(value, axis)
        return made if isinstance(made, int) else self.tiled.get((value, axis), WHOLE)

    def propagate(self) -> None:
        """Ops join loops until nothing changes: forwards from tiled operands, backwards from how a result is read.

        An op joins where one letter fits, and stays as it is where several do: that is a conflict, and the next tactic
        or another axis may resolve it. An argument that all its readers slice alike is tiled so.
        """
        changed = True
        while changed:
            before = len(self.loop) + len(self.tiled)
            for op, axis in itertools.product((*self.program.ops, *reversed(self.program.ops)), self.mesh):
                fitting = {letter for letter in self._evidence(op, axis) if self._divides(op, letter, axis)}
                if (op.result, axis) not in self.loop and (op.result, axis) not in self.kept and len(fitting) == 1:
                    self.loop[op.result, axis] = fitting.pop()
            made = {op.result for op in self.program.ops}
            for value, axis in itertools.product(self.program.shapes.keys() - made, self.mesh):
                dims = set(self._read_on(value, axis))
                if len(dims) == 1:
                    self.tile(value, dims.pop(), axis)
            changed = len(self.loop) + len(self.tiled) > before

    def _read_on(self, value: str, axis: str) -> Iterator[int]:
        """The dims on which readers slice a value."""
        for op in self.program.ops:
            letter = self.loop.get((op.result, axis))
            for operand, letters in zip(op.operands, op.operand_letters, strict=True):
                if operand == value and letter is not None and letter in letters:
                    yield letters.index(letter)

    def _evidence(self, op: Op, axis: str) -> Iterator[str]:
        """Letters that stand on a tiled dim of an operand, or on a dim on which the result is tiled or sliced."""
        for value, letters in zip(op.operands, op.operand_letters, strict=True):
            dim = self.held(value, axis)
            if dim is not None and (value, axis) not in self.kept:
                yield letters[dim]
        if (op.result, axis) in self.tiled:
            yield op.result_letters[self.tiled[op.result, axis]]
        for dim in self._read_on(op.result, axis):
            yield op.result_letters[dim]

    def _divides(self, op: Op, letter: str, axis: str) -> bool:
        """True if the axis, with those that already loop over the letter, divides it, and all operands are free."""
        pairs = zip((*op.operands, op.result), (*op.operand_letters, op.result_letters), strict=True)
        size = next(self.program.shapes[v][dims.index(letter)] for v, dims in pairs if letter in dims)
        ways = [n for other, n in self.mesh.items() if self.loop.get((op.result, other)) == letter]
        free = all(
            (v, axis) not in self.kept for v, d in zip(op.operands, op.operand_letters, strict=True) if letter in d
        )
        return free and size % int(np.prod([*ways, self.mesh[axis]])) == 0


# ---- PartIR:HLO: what every device runs


class Devices:
    """Local arrays on every device of a mesh, and the collectives between them."""

    def __init__(self, mesh: dict[str, int]):
        self.mesh, self.count = mesh, Counter[str]()
        self.places = [dict(zip(mesh, at, strict=True)) for at in itertools.product(*map(range, mesh.values()))]

    def move(self, parts: list[np.ndarray], axis: str, have: int | str | None, want: int | None) -> list[np.ndarray]:
        """Along one axis, from what the devices have to what they want, by one collective at most."""
        if have == want:
            return parts
        names = {(True, True): "all_reduce", (True, False): "reduce_scatter", (False, True): "all_gather"}
        if have is not WHOLE:
            self.count[names.get((have == SUM, want is WHOLE), "all_to_all")] += 1
        moved: list[np.ndarray] = []
        for place in self.places:
            group = [p for p, at in zip(parts, self.places, strict=True) if {**at, axis: 0} == {**place, axis: 0}]
            whole = joined(group, have)
            moved.append(whole if want is None else np.split(whole, self.mesh[axis], want)[place[axis]])
        return moved


def joined(parts: list[np.ndarray], have: int | str | None) -> np.ndarray:
    """The whole of which devices along an axis have these parts."""
    if isinstance(have, int):
        return np.concatenate(parts, have)
    return np.sum(parts, axis=0) if have == SUM else parts[0]


def run(partitioning: Partitioning, arguments: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], Counter[str]]:
    """What the outputs are on a simulated mesh, and how many collectives it took, by kind.

    A value is moved where it is read, once for all readers that want it alike; an argument anew for each, since it is
    held in parts to save memory. What is pending is reduced once: into the tiles that all its readers want, if they
    want the same, else into the whole.
    """
    program, devices = partitioning.program, Devices(partitioning.mesh)
    axes = list(partitioning.mesh)
    now: dict[tuple[str, tuple], list[np.ndarray]] = {}

    def wanted(op: Op, position: int) -> tuple[int | None, ...]:
        """Per axis, the dim on which an op slices an operand."""
        letters = op.operand_letters[position]
        loops = [partitioning.loop.get((op.result, axis)) for axis in axes]
        return tuple(letters.index(letter) if letter is not None and letter in letters else WHOLE for letter in loops)

    def readers(value: str) -> set[tuple[int | None, ...]]:
        """What the readers of a value want, the caller of the program among them."""
        found = {wanted(op, i) for op in program.ops for i, v in enumerate(op.operands) if v == value}
        if value in program.outputs:
            found.add(tuple(partitioning.held(program.ties.get(value, value), axis) for axis in axes))
        return found

    def settle(value: str, parts: list[np.ndarray]) -> None:
        """Keeps a value as it is made, its pending sums reduced."""
        layout = [partitioning.produced(value, axis) for axis in axes]
        for i, axis in enumerate(axes):
            if layout[i] == SUM:
                dims = {want[i] for want in readers(value)}
                into = dims.pop() if len(dims) == 1 else WHOLE
                parts, layout[i] = devices.move(parts, axis, SUM, into), into
        now[value, tuple(layout)] = parts
        home[value] = tuple(layout)

    def fetch(value: str, want: tuple[int | None, ...]) -> list[np.ndarray]:
        """A value as it is read. Gathers go from the innermost axis outwards, slices from the outermost inwards."""
        if (value, want) not in now:
            parts, have = now[value, home[value]], home[value]
            for i in reversed(range(len(axes))):
                if (
                    have[i] is not WHOLE
                    and have[i] != want[i]
                    and (want[i] is WHOLE or want[i] in have[:i] + have[i + 1 :])
                ):
                    parts, have = devices.move(parts, axes[i], have[i], WHOLE), (*have[:i], WHOLE, *have[i + 1 :])
            for i, axis in enumerate(axes):
                parts = devices.move(parts, axis, have[i], want[i])
            if value in arguments:
                return parts
            now[value, want] = parts
        return now[value, want]

    home: dict[str, tuple] = {}
    whole = (WHOLE,) * len(axes)
    for name, array in arguments.items():
        parts = [array] * len(devices.places)
        for axis in axes:
            parts = devices.move(parts, axis, WHOLE, partitioning.held(name, axis))
        settle(name, parts)
    for op in program.ops:
        operands = [fetch(value, wanted(op, i)) for i, value in enumerate(op.operands)]
        settle(op.result, [op.compute(*local) for local in zip(*operands, strict=True)])
    for value in program.outputs:
        fetch(value, tuple(partitioning.held(program.ties.get(value, value), axis) for axis in axes))
    count = devices.count.copy()
    return {value: fetch(value, whole)[0] for value in program.outputs}, count


# ---- an example: a training step of two layers


def training_step(batch: int = 8, width: int = 8, hidden: int = 16, rate: float = 0.1) -> Program:
    """y = relu(x w1) w2, loss (y - t)^2 / 2, and one step down its gradient."""
    program = Program(
        {"x": (batch, width), "t": (batch, width), "w1": (width, hidden), "w2": (hidden, width)},
        ["next w1", "next w2"],
        ties={"next w1": "w1", "next w2": "w2"},
    )
    program.einsum("a", "bi,ij->bj", "x", "w1")
    program.map("h", lambda a: np.maximum(a, 0), "a")
    program.einsum("y", "bj,jo->bo", "h", "w2")
    program.map("dy", lambda y, t: y - t, "y", "t")
    program.einsum("dw2", "bj,bo->jo", "h", "dy")
    program.einsum("dh", "bo,jo->bj", "dy", "w2")
    program.map("da", lambda dh, a: dh * (a > 0), "dh", "a")
    program.einsum("dw1", "bi,bj->ij", "x", "da")
    program.map("next w1", lambda w, d: w - rate * d, "w1", "dw1")
    program.map("next w2", lambda w, d: w - rate * d, "w2", "dw2")
    return program


Tactic = list[tuple[str, int, str]]
"""Tile actions: value, dim, axis. A schedule is a list of tactics, each followed by propagation."""

BP: Tactic = [("x", 0, "batch"), ("t", 0, "batch")]
MP: Tactic = [("w1", 1, "model")]
Z3: Tactic = [("w1", 0, "batch"), ("w2", 1, "batch")]
SCHEDULES: dict[str, list[Tactic]] = {
    "BP": [BP],
    "MP": [MP],
    "BP+MP": [BP, MP],
    "BP+Z3": [BP, Z3],
    "BP+MP+Z3": [BP, MP, Z3],
}


def partition(program: Program, mesh: dict[str, int], schedule: list[Tactic]) -> Partitioning:
    """The actions of each tactic in turn, with propagation after each tactic."""
    partitioning = Partitioning(program, mesh)
    for tactic in schedule:
        for value, dim, axis in tactic:
            partitioning.tile(value, dim, axis)
        partitioning.propagate()
    return partitioning


def main() -> None:
    """Each schedule on four by two devices: the collectives, and whether the numbers are those of one device."""
    program, rng = training_step(), np.random.default_rng(0)
    names = ["x", "t", "w1", "w2"]
    arguments = {name: rng.normal(size=program.shapes[name]) for name in names}
    expected, _ = run(Partitioning(program, {"batch": 1, "model": 1}), arguments)
    for name, schedule in SCHEDULES.items():
        found, count = run(partition(program, {"batch": 4, "model": 2}, schedule), arguments)
        equal = all(np.allclose(found[v], expected[v]) for v in program.outputs)
        print(f"{name:10}{'equal' if equal else 'WRONG':8}{dict(count)}")


if __name__ == "__main__":
    main()
