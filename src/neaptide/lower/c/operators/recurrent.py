"""LSTM, GRU and RNN: one kernel, in which a row of a batch runs through its sequence."""

from __future__ import annotations

from typing import Final

from neaptide.lower.c.operators.elementwise import UNARY
from neaptide.lower.c.operators.node_call import NodeCall, Row, typed

_GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}
_ACTIVATIONS: Final = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_SETTINGS: Final = ("activation_alpha", "activation_beta", "clip", "input_forget", "layout")


def _recurrent(call: NodeCall) -> None:
    kind = call.op
    if used := [name for name in _SETTINGS if call.attributes.get(name)]:
        raise call.refusal(f"has {', '.join(used)}", "the C target has it without")
    x, w, r = call.x(0), call.x(1), call.x(2)
    directions, hidden = w.dims[0], r.dims[2]
    defaults = _ACTIVATIONS[kind]
    given = [str(name).title() for name in call.attributes.get("activations") or defaults * directions]
    names = given[: len(defaults)]
    if given != names * directions or not UNARY.keys() >= set(names):
        raise call.refusal(
            f"has the activations {', '.join(given)}", "those of its directions must be one list"
        )
    name = "_".join([kind, *names, str(hidden)]).lower()
    texts = [UNARY[one] for one in (*names, names[0], names[0])]
    activations = {f"A{k}": text for k, text in enumerate(texts[:3])}
    tokens = call.tokens(x)
    name = f"{name}_{tokens['X']}"
    call.code.kernel("recurrent", N=name, H=str(hidden), G=str(_GATES[kind]), **activations, **tokens)
    has_cell = kind == "LSTM"
    places = [3, 4, 5, *((6, 7) if has_cell else ())]
    operands = [typed(call.x(k) if call.has(k) else None) for k in places] + ([] if has_cell else ["0", "0"])
    results = [typed(call.y(k) if call.has_result(k) else None, written=True) for k in (0, 1, 2)]
    backward = int(call.text("direction", "forward") == "reverse")
    after = int(call.integer("linear_before_reset"))
    table = call.code.table([*x.dims, directions, backward, after])
    call.code.call(f"nt_{name}", typed(x), typed(w), typed(r), *operands, *results, table)


ROWS: Final[dict[str, Row]] = {name: Row(_recurrent, dense=True) for name in _GATES}
