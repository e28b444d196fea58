"""Random valid graphs over made-up `toy.*` operations: for property tests, brute-force comparisons and benchmarks."""

from __future__ import annotations

import random
from dataclasses import dataclass

from neaptide.ir.builder import GraphBuilder, ValueId
from neaptide.ir.graph import Graph
from neaptide.ir.values import Kind

_RECENT = (
    6  # operands come mostly from the last few values, as in real programs; a uniform choice makes stars
)


@dataclass(slots=True)
class _Growing:
    """A graph in the making: tensors that may be used, as `(value, elements)`."""

    builder: GraphBuilder
    rng: random.Random
    tensors: list[tuple[ValueId, int]]
    owned: set[int]  # storages of the caller

    def operand(self) -> tuple[ValueId, int]:
        if self.rng.random() < 0.7:
            return self.rng.choice(self.tensors[-_RECENT:])
        return self.rng.choice(self.tensors)

    def operands(self, most: int) -> list[ValueId]:
        count = self.rng.randint(1, most)
        return [value for value, _ in dict.fromkeys(self.operand() for _ in range(count))]

    def elements(self) -> int:
        return self.rng.choice((1, 2, 3, 5, 8, 13, 21, 34)) * self.rng.choice((1, 1, 4))

    def made(self, outputs: tuple[ValueId, ...], sizes: list[int]) -> None:
        self.tensors.extend(zip(outputs, sizes, strict=True))


def random_graph(
    seed: int,
    n_nodes: int,
    *,
    views: bool = True,
    in_place: bool = True,
    multi_output: bool = True,
    shape_only: bool = True,
    persistent: bool = True,
    rng: bool = True,
    effects: bool = False,
) -> Graph:
    """A random valid graph with static sizes; the same arguments give the same graph on every machine.

    Args:
        seed: of all choices.
        n_nodes: number of nodes, at least 0.
        views: with nodes that hand on part of an operand's storage.
        in_place: with nodes that overwrite an operand; of the caller's storages only with `persistent`.
        multi_output: with nodes of two or three outputs.
        shape_only: with operands of which only the shape is used.
        persistent: with parameters, some of them updated in place; else one input alone.
        rng: with nodes that draw random numbers.
        effects: with nodes that take part in a collective, that print, and that no op table knows.
    """
    choices = random.Random(seed)
    builder = GraphBuilder(f"random_{seed}")
    growing = _Growing(builder, choices, [], set())
    sources = [("batch", Kind.INPUT)]
    if persistent:
        sources += [(f"weight{i}", Kind.PARAMETER) for i in range(choices.randint(1, 3))]
    for name, kind in sources:
        elements = growing.elements()
        value = builder.input(name, (elements,), kind=kind)
        growing.tensors.append((value, elements))
        growing.owned.add(_storage(builder, value))
    kinds = ["compute"] * 5
    kinds += ["view"] * 2 * views + ["in_place"] * in_place + ["split"] * multi_output
    kinds += ["like"] * shape_only + ["noise"] * rng
    kinds += ["collective", "print", "unknown"] * effects
    for position in range(n_nodes):
        _GROW[choices.choice(kinds)](growing, position)
    last = [value for value, _ in growing.tensors[-2:]]
    builder.output(*choices.sample(last, choices.randint(1, len(last))))
    return builder.finish()


def _storage(builder: GraphBuilder, value: int) -> int:
    storage = builder.values[value].storage
    assert storage is not None
    return storage


def _compute(growing: _Growing, position: int) -> None:
    size = growing.elements()
    made = growing.builder.node("toy.mix", *growing.operands(3), outputs=[f"v{position}: f32[{size}]"])
    growing.made(made, [size])


def _noise(growing: _Growing, position: int) -> None:
    size = growing.elements()
    made = growing.builder.node(
        "toy.dropout", *growing.operands(2), outputs=[f"v{position}: f32[{size}]"], rng="cpu"
    )
    growing.made(made, [size])


def _collective(growing: _Growing, position: int) -> None:
    value, size = growing.operand()
    declared = [f"v{position}: f32[{size}]"]
    growing.made(growing.builder.node("toy.mix", value, outputs=declared, collective="world"), [size])


def _print(growing: _Growing, position: int) -> None:
    value, size = growing.operand()
    growing.made(
        growing.builder.node("toy.mix", value, outputs=[f"v{position}: f32[{size}]"], host=True), [size]
    )


def _unknown(growing: _Growing, position: int) -> None:
    size = growing.elements()
    made = growing.builder.node("toy.unknown", *growing.operands(2), outputs=[f"v{position}: f32[{size}]"])
    growing.made(made, [size])


def _split(growing: _Growing, position: int) -> None:
    sizes = [growing.elements() for _ in range(growing.rng.randint(2, 3))]
    declared = [f"v{position}_{k}: f32[{size}]" for k, size in enumerate(sizes)]
    growing.made(growing.builder.node("toy.split", *growing.operands(2), outputs=declared), sizes)


def _like(growing: _Growing, position: int) -> None:
    used, _ = growing.operand()
    shape, size = growing.operand()
    made = growing.builder.node(
        "toy.expand_like", used, shape, outputs=[f"v{position}: f32[{size}]"], reads=[used]
    )
    growing.made(made, [size])


def _view(growing: _Growing, position: int) -> None:
    base, size = growing.operand()
    builder = growing.builder
    part = growing.rng.randint(1, size)
    start = builder.values[base].offset.constant_value() + growing.rng.randint(0, size - part)
    label = builder.values[base].name
    made = builder.node(
        "toy.slice", base, start, part, outputs=[f"v{position}: f32[{part}] offset({start}) @{label}"]
    )
    growing.made(made, [part])


def _in_place(growing: _Growing, position: int) -> None:
    builder = growing.builder
    target, size = growing.operand()
    kind = builder.storages[_storage(builder, target)].kind
    if _storage(builder, target) in growing.owned and kind is not Kind.PARAMETER:
        _compute(growing, position)
        return
    value = builder.values[target]
    declared = f"v{position}: f32[{size}] offset({value.offset}) @{value.name}"
    others = [other for other in growing.operands(2) if other != target]
    growing.made(builder.node("toy.update_", target, *others, outputs=[declared], writes=[target]), [size])


_GROW = {
    "compute": _compute,
    "noise": _noise,
    "collective": _collective,
    "print": _print,
    "unknown": _unknown,
    "split": _split,
    "like": _like,
    "view": _view,
    "in_place": _in_place,
}
