"""Run by a Python that has TVM: `python onnx_tvm_process.py FILE ...` prints bytes of planned storages, one line of JSON a file.

Fusion and static memory planning of TVM Relax, by the passes of its default pipeline; weights and inputs do not count.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any


def footprint(path: str) -> dict[str, Any]:
    """Bytes of the storages that TVM plans, and of the outputs, which it leaves to the caller."""
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    before = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.DeadCodeElimination(),
    ]
    lowered = [
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.RewriteDataflowReshape(),
        relax.transform.CallTIRRewrite(),
        relax.transform.StaticPlanBlockMemory(),
    ]
    with tvm.target.Target("llvm"):
        module = tvm.transform.Sequential([*before, *lowered])(from_onnx(onnx.load(path)))
    found = {"storage_bytes": 0, "unplanned": 0}

    def visit(expression: Any) -> None:
        if not isinstance(expression, relax.Call):
            return
        match getattr(expression.op, "name", ""):
            case "relax.memory.alloc_storage":
                found["storage_bytes"] += int(expression.args[0].values[0])
            case "relax.builtin.alloc_tensor":
                found["unplanned"] += 1

    relax.analysis.post_order_visit(module["main"], visit)
    return {**found, "tvm": tvm.__version__}


def main(paths: Sequence[str]) -> None:
    for path in paths:
        try:
            answer = footprint(path)
        except Exception as error:  # noqa: BLE001 - what its frontend does not take is a row of the table
            lines = str(error).strip().splitlines() or [""]
            answer = {"failure": f"{type(error).__name__}: {lines[-1][:200]}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
