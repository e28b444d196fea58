"""`neaptide grad model.onnx`: the model, extended by the nodes that compute its gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neaptide.cli.command import Request
from neaptide.cli.model_files.sources import located, place_of_model
from neaptide.cli.process import exit_codes
from neaptide.errors import UsageError
from neaptide.report.document import Document, Table, document


def grad(request: Request) -> int:
    """Writes a model with gradients, or with updated parameters, as further outputs."""
    from neaptide import onnx

    if request.model.loss is None or request.model.wrt is None:
        raise UsageError(
            "a gradient is of one value with respect to others",
            next_step="name them: --loss NAME --wrt NAME,NAME",
        )
    if request.output is None:
        raise UsageError("a model is written, and no file is named", next_step="add -o grad.onnx")
    if Path(request.target).suffix != ".onnx":
        raise UsageError(f"{request.target} is no .onnx file", next_step="name a model of ONNX")
    place = place_of_model(request.output, request.target, may_be_folder=False)
    names = tuple(name.strip() for name in request.model.wrt.split(",") if name.strip())
    request.console.progress(f"differentiating {request.model.loss} with respect to {len(names)} values")
    with located(request.target):
        made = onnx.grad(request.target, loss=request.model.loss, wrt=names, sgd=request.model.sgd)
        onnx.save(made, place)
    known = len(onnx.load(request.target).graph.output)
    content: dict[str, Any] = {
        "name": request.target,
        "loss": request.model.loss,
        "wrt": list(names),
        "sgd": request.model.sgd,
        "operators": len(made.graph.node),
        "outputs": [value.name for value in made.graph.output][known:],
        "files": [str(place)],
    }
    request.without_files().deliver(content, lambda: _document(content), noun="model")
    return exit_codes.DONE


def _document(found: dict[str, Any]) -> Document:
    rows = tuple((name,) for name in found["outputs"])
    return document(
        f"{found['name']}: gradients of {found['loss']}, {found['operators']} operators",
        Table(("further outputs",), rows),
        f"written: {', '.join(found['files'])}",
    )
