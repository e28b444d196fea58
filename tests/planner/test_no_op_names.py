from __future__ import annotations

import ast
from pathlib import Path

import neaptide
from support.together import together

ROOT = Path(neaptide.__file__).parent
FILES = sorted(path for room in ("planner", "transform", "schedule") for path in (ROOT / room).rglob("*.py"))
NAMESPACES = (
    "aten.",
    "toy.",
    "prims.",
    "onnx.",
    "com_microsoft.",
    "tflite.",
    "neaptide.loop",
    "native_",
    "_foreach",
    "_fused",
)


@together("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_searches_and_transforms_know_no_operation_by_name(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    assert [text for text in texts if text.startswith(NAMESPACES)] == []
