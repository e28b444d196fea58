"""The text of the C file and of its header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from neaptide.lower.c.code import Code, prelude
from neaptide.lower.c.memory import Arena, Memory
from neaptide.lower.c.views import View, product

_CHECKS: Final = """\
/* -DNEAPTIDE_POISON fills bytes with NaN when what they hold is no longer needed; under AddressSanitizer they cannot be
   touched before something else comes to lie there. */
#ifdef NEAPTIDE_POISON
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)0)
#endif
#define NT_BORN(at, size) ASAN_UNPOISON_MEMORY_REGION(at, size)
#define NT_DEAD(at, size) (memset(at, 0xff, size), ASAN_POISON_MEMORY_REGION(at, size))
#else
#define NT_BORN(at, size) ((void)0)
#define NT_DEAD(at, size) ((void)0)
#endif
"""


@dataclass(frozen=True, slots=True)
class Port:
    """A tensor that the caller reads or writes: its name in C and in the model, and where it lies.

    `memory` is the index of its memory; None for a weight, which lies in an array of its own.
    """

    name: str
    title: str
    view: View
    memory: int | None

    @property
    def nbytes(self) -> int:
        return product(self.view.dims) * self.view.item_bytes


Ports: TypeAlias = Mapping[str, Sequence[Port]]
"""By `in`, `out` and `weight`."""


def array_name(name: str, memory: Memory) -> str:
    """The name of the array of a memory."""
    return f"{name}_arena" if not memory.name else f"{name}_arena_{memory.name}"


def size_name(name: str, memory: Memory) -> str:
    """The name of the constant with the bytes of a memory."""
    return f"{name.upper()}_ARENA_BYTES" if not memory.name else f"{name.upper()}_{memory.name.upper()}_BYTES"


def header(name: str, memories: Sequence[Memory], arena: Arena, ports: Ports) -> str:
    """The header: sizes, offsets, and functions that say where inputs, outputs and updated weights lie."""
    guard = f"{name.upper()}_H"
    lines = [
        f"/* {name}: write the inputs, call {name}_run, read the outputs.",
        "   All of them lie in the arena. A run may overwrite the inputs: write them before every run. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stdint.h>",
        "",
    ]
    for memory, nbytes in zip(memories, arena.sizes, strict=True):
        lines.append(f"#define {size_name(name, memory)} {nbytes}")
    for direction, group in ports.items():
        for port in group:
            macro = f"{name.upper()}_{direction.upper()}_{port.name.upper()}"
            where = "" if port.memory is None else memories[port.memory].name
            lines += [
                "",
                f"/* {port.title}: {port.view.dtype} {list(port.view.dims)}{f' in {where}' if where else ''} */",
                *([] if port.memory is None else [f"#define {macro}_OFFSET {port.view.place.offset}"]),
                f"#define {macro}_BYTES {port.nbytes}",
                _signature(name, direction, port) + ";",
            ]
    return "\n".join([*lines, "", f"void {name}_run(void);", "", "#endif", ""])


def _signature(name: str, direction: str, port: Port) -> str:
    qualifier = "const " if direction == "out" else ""
    return f"{qualifier}{port.view.c_type} *{name}_{direction}_{port.name}(void)"


def source(
    name: str,
    code: Code,
    memories: Sequence[Memory],
    arena: Arena,
    ports: Ports,
) -> str:
    """The C file."""
    arrays, checks = _arrays(name, memories, arena)
    begin, end = _marks(name, memories, arena, ports["in"])
    functions = [
        f"{_signature(name, direction, port)} {{ return ({port.view.c_type} *)({port.view.place.text}); }}"
        for direction, group in ports.items()
        for port in group
    ]
    return "\n".join(
        [
            f"/* {name}: one static arena, no allocation. */",
            f'#include "{name}.h"',
            "",
            prelude(),
            _CHECKS,
            *arrays,
            *checks,
            "",
            *code.kernels,
            *code.arrays,
            *code.definitions(),
            "",
            *functions,
            "",
            f"void {name}_run(void) {{",
            *(
                f"  (void){array_name(name, memory)};"
                for memory, size in zip(memories, arena.sizes, strict=True)
                if not size
            ),
            *begin,
            *code.lines,
            *end,
            "}",
            "",
        ]
    )


def _arrays(name: str, memories: Sequence[Memory], arena: Arena) -> tuple[list[str], list[str]]:
    arrays, checks = [], []
    for memory, nbytes in zip(memories, arena.sizes, strict=True):
        array, size, section = array_name(name, memory), size_name(name, memory), ""
        if memory.name:
            section = f"{name.upper()}_{memory.name.upper()}"
            arrays += [f"#ifndef {section}", f"#define {section}", "#endif"]
        # An array of no bytes is no C.
        length = size if nbytes else "1"
        arrays.append(
            f"{f'{section} ' if section else ''}static _Alignas(16) unsigned char {array}[{length}];"
        )
        if nbytes:
            checks.append(f'_Static_assert(sizeof {array} == {nbytes}, "the arena has the planned size");')
        if memory.capacity_bytes is not None:
            limit = memory.capacity_bytes
            checks.append(f'_Static_assert({size} <= {limit}, "the arena fits the memory");')
    return arrays, checks


def _marks(
    name: str, memories: Sequence[Memory], arena: Arena, inputs: Sequence[Port]
) -> tuple[list[str], list[str]]:
    """What the checked build does when a run begins and ends."""
    whole = [
        (array_name(name, memory), nbytes)
        for memory, nbytes in zip(memories, arena.sizes, strict=True)
        if nbytes
    ]
    head, tail = ["#ifdef NEAPTIDE_POISON"], ["#endif"]
    begin = [f"  ASAN_POISON_MEMORY_REGION({array}, {nbytes});" for array, nbytes in whole]
    begin += [f"  ASAN_UNPOISON_MEMORY_REGION({port.view.place.text}, {port.nbytes});" for port in inputs]
    end = [f"  ASAN_UNPOISON_MEMORY_REGION({array}, {nbytes});" for array, nbytes in whole]
    return [*head, *begin, *tail], [*head, *end, *tail]
