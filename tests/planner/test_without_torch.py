"""All that plans a graph runs where torch cannot be imported."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys

class NoFramework:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "onnx"):
            raise ImportError(f"{name} must not be imported here")

sys.meta_path.insert(0, NoFramework())

from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.ir.builder import GraphBuilder
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.budget import Budget
from neaptide.planner.check_plan import check_program, problem_of
from neaptide.planner.graphs.plan_graph import GraphAsk, plan_graph
from neaptide.planner.pricing import Pricing
from neaptide.report.plan_text import plan_document  # `neaptide explain` prints with it

b = GraphBuilder("chain", registry())
kept, x = [], b.input("x", (256, 256))
w = b.input("w", (256, 256))
for k in range(6):
    (x,) = b.node("aten.mm.default", x, w, outputs=[f"p{k}: f32[256, 256]"])
    (x,) = b.node("aten.sin.default", x, outputs=[f"s{k}: f32[256, 256]"])
    kept.append(x)
for k, saved in enumerate(reversed(kept)):
    (x,) = b.node("aten.mul.Tensor", x, saved, outputs=[f"g{k}: f32[256, 256]"])
b.output(x)
graph = b.finish()
pricing = Pricing(EstimatedCost(get_device("rtx3090"), registry()), registry())
found = plan_graph(graph, pricing, GraphAsk(Budget("min"), limits=Limits(work=2000)))
program = found.program
step = problem_of(program, graph, registry())
assert check_program(program, graph, step, registry()) == found.schedule
assert program.predictions.peak_bytes < program.predictions.baseline_peak_bytes
assert "torch" not in sys.modules
print(program.predictions.peak_bytes, program.predictions.baseline_peak_bytes)
"""


def test_a_graph_of_the_builder_is_priced_planned_and_judged_without_torch():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    peak, baseline = map(int, done.stdout.split())
    assert 0 < peak < baseline
