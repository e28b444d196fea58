"""A layout drawn: offset against time, coloured by what the bytes are for, with live bytes as a line over it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neaptide.layout.bounds import bytes_live_at, live_bytes
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.report.picture_file import Sheet, matplotlib_module, svg_text, write_picture, xml_text
from neaptide.units import format_bytes

# The palette of Okabe and Ito, whose colours stay apart for every common kind of colour vision.
_COLOURS: Final[Mapping[str, str]] = {
    "activation": "#009E73",
    "gradient": "#D55E00",
    "temporary": "#E69F00",
    "workspace": "#666666",
    "output": "#F0E442",
    "parameter": "#0072B2",
    "buffer": "#56B4E9",
    "optimizer_state": "#CC79A7",
    "input": "#BBBBBB",
    "": "#56B4E9",
}
_OTHER_KINDS: Final = ("#0072B2", "#CC79A7", "#882255", "#999933", "#332288", "#44AA99")
_WIDTH, _HEIGHT = 1200, 680
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 20, 70, 50  # margins
_TICKS: Final = 5
_PNG_INCHES: Final = (12.0, 6.8)
_PNG_DPI: Final = 120


@dataclass(frozen=True, slots=True)
class _Scale:
    """From steps and bytes to places on the sheet."""

    first: int
    last: int
    arena_bytes: int

    @staticmethod
    def of(problem: LayoutProblem, layout: Layout) -> _Scale:
        arena = max(layout.arena_bytes, 1)
        return (
            _Scale(int(problem.starts.min()), int(problem.ends.max()), arena)
            if len(problem)
            else _Scale(0, 1, arena)
        )

    def x(self, step: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (step - self.first) / (self.last - self.first)

    def y(self, nbytes: int) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * nbytes / self.arena_bytes


def save_picture(path: str | Path, problem: LayoutProblem, layout: Layout, *, title: str = "") -> None:
    """Draw a layout into a file: `.svg`, or `.png` with the extra `plots`.

    Raises:
        UsageError: another suffix, or the file cannot be written.
        MissingExtra: matplotlib is not installed.
    """
    write_picture(
        path,
        lambda: layout_svg(problem, layout, title=title),
        lambda target: _save_png(target, problem, layout, title),
    )


def kind_colours(problem: LayoutProblem) -> dict[str, str]:
    """The colour of each kind in use, known kinds first. O(n)."""
    kinds = {buffer.kind for buffer in problem.buffers}
    others = sorted(kinds - _COLOURS.keys())
    colours = {kind: colour for kind, colour in _COLOURS.items() if kind in kinds}
    return colours | {kind: _OTHER_KINDS[k % len(_OTHER_KINDS)] for k, kind in enumerate(others)}


def layout_svg(problem: LayoutProblem, layout: Layout, *, title: str = "") -> str:
    """A layout as SVG text: each buffer has a tooltip with its name, bytes, lifetime and offset. O(n log n)."""
    heading = title or problem.name or "layout"
    summary = _summary(problem, layout)
    scale = _Scale.of(problem, layout)
    parts = [
        *_svg_legend(problem),
        *_svg_axes(scale),
        *_svg_buffers(problem, layout, scale),
        _svg_live(problem, scale),
    ]
    return svg_text(Sheet(_WIDTH, _HEIGHT, _LEFT, _RIGHT), heading, summary, parts)


def _summary(problem: LayoutProblem, layout: Layout) -> str:
    live = live_bytes(problem)
    above = f", {layout.arena_bytes / live - 1:.2%} above it" if layout.arena_bytes > live else ", the same"
    arena = format_bytes(layout.arena_bytes)
    return f"{len(problem)} buffers, {format_bytes(live)} live at once, arena {arena}{above}"


def _svg_legend(problem: LayoutProblem) -> Iterator[str]:
    x = _LEFT
    for kind, colour in kind_colours(problem).items():
        label = _label(kind)
        yield f'<rect x="{x}" y="38" width="14" height="14" fill="{colour}"/>'
        yield f'<text x="{x + 19}" y="50">{xml_text(label)}</text>'
        x += 40 + 8 * len(label)
    yield f'<path d="M{x} 45h18" stroke="#000" stroke-width="1.6"/>'
    yield f'<text x="{x + 23}" y="50">live bytes</text>'


def _svg_axes(scale: _Scale) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for tick in range(_TICKS):
        nbytes = scale.arena_bytes * tick // (_TICKS - 1)
        y = scale.y(nbytes)
        yield f'<path d="M{_LEFT} {y:.2f}H{right}" stroke="#ddd"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.2f}" text-anchor="end">{format_bytes(nbytes)}</text>'
    for step in sorted({scale.first + (scale.last - scale.first) * k // (_TICKS - 1) for k in range(_TICKS)}):
        x = scale.x(step)
        yield f'<text x="{x:.2f}" y="{bottom + 18}" text-anchor="middle">{step}</text>'
    yield f'<text x="{(_LEFT + right) / 2:.0f}" y="{bottom + 38}" text-anchor="middle">step</text>'


def _svg_buffers(problem: LayoutProblem, layout: Layout, scale: _Scale) -> Iterator[str]:
    shapes: dict[str, list[str]] = {kind: [] for kind in kind_colours(problem)}
    for buffer, offset in zip(problem.buffers, layout.offsets, strict=True):
        tip = f"<title>{xml_text(_tip(buffer, offset))}</title>"
        for part in buffer.parts():
            x, y = scale.x(part.start), scale.y(offset + part.high)
            width, height = scale.x(part.end) - x, scale.y(offset + part.low) - y
            shapes[buffer.kind].append(
                f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}">{tip}</rect>'
            )
    # A dark rim keeps what is thinner than a pixel visible; a light one would hide it.
    yield '<g stroke="#000" stroke-opacity=".4" stroke-width=".4">'
    for kind, colour in kind_colours(problem).items():
        yield f'<g fill="{colour}">'
        yield from shapes[kind]
        yield "</g>"
    yield "</g>"


def _svg_live(problem: LayoutProblem, scale: _Scale) -> str:
    points, totals = bytes_live_at(problem)
    path = [f"M{_LEFT} {scale.y(0):.2f}"]
    for point, total in zip(points.tolist(), totals.tolist(), strict=True):
        path.append(f"H{scale.x(point):.2f}V{scale.y(total):.2f}")
    return f'<path d="{"".join(path)}" fill="none" stroke="#000" stroke-width="1.6" pointer-events="none"/>'


def _tip(buffer: Buffer, offset: int) -> str:
    kind = f" ({_label(buffer.kind)})" if buffer.kind else ""
    size = f"{format_bytes(buffer.nbytes)}, {buffer.nbytes} bytes"
    return f"{buffer.name}{kind}\n{size}\nsteps [{buffer.start}, {buffer.end})\noffset {offset}"


def _label(kind: str) -> str:
    return kind.replace("_", " ") or "buffers"


def _save_png(path: Path, problem: LayoutProblem, layout: Layout, title: str) -> None:
    # Without pyplot there is no global state, and nothing opens a window.
    figure = matplotlib_module("figure").Figure(figsize=_PNG_INCHES, layout="constrained")
    axes = figure.subplots()
    corners: dict[str, list[list[tuple[int, int]]]] = {kind: [] for kind in kind_colours(problem)}
    for buffer, offset in zip(problem.buffers, layout.offsets, strict=True):
        for part in buffer.parts():
            low, high = offset + part.low, offset + part.high
            corners[buffer.kind].append(
                [(part.start, low), (part.end, low), (part.end, high), (part.start, high)]
            )
    collections = matplotlib_module("collections")
    for kind, colour in kind_colours(problem).items():
        shapes = collections.PolyCollection(
            corners[kind], facecolors=colour, edgecolors=(0, 0, 0, 0.4), linewidths=0.3, label=_label(kind)
        )
        axes.add_collection(shapes)
    points, totals = bytes_live_at(problem)
    axes.step(points, totals, where="post", color="black", linewidth=1.2, label="live bytes")
    scale = _Scale.of(problem, layout)
    axes.set_xlim(scale.first, scale.last)
    axes.set_ylim(0, scale.arena_bytes)
    axes.set_xlabel("step")
    axes.set_ylabel("offset")
    axes.yaxis.set_major_formatter(lambda nbytes, _position: format_bytes(nbytes))
    axes.set_title(f"{title or problem.name or 'layout'}\n{_summary(problem, layout)}", parse_math=False)
    figure.legend(loc="outside lower center", ncols=6)
    figure.savefig(path, dpi=_PNG_DPI)
