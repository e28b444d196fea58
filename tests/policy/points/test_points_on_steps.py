"""Captured training steps with dims that vary: one program, the bits of eager at every shape and budget."""

from __future__ import annotations

import copy

import torch

from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.frontends.state.state_finder import find_state
from neaptide.frontends.torch_step import capture_step
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.points.plan import point_plan
from neaptide.planner.points.shaped import ShapedProgram
from neaptide.planner.strategies import early_updates
from neaptide.runtime.calls.binding import Binding, state_tensors
from neaptide.runtime.measuring.meter import LiveBytesMeter
from neaptide.runtime.shapes.limit_by_shape import PointsWithin
from neaptide.runtime.shapes.point_executable import PointExecutable, PointProgram
from neaptide.zoo.spec import factory

EVERYTHING = 1 << 50


class Pair:
    """A step and its program with points, on the same state, which is put back before each run."""

    def __init__(self, spec, dims):
        torch.manual_seed(0)
        self.step, self.batch = factory(spec)()
        captured = capture_step(self.step, (self.batch,), dynamic={"batch": dims})
        self.graph = captured.steady.graph
        cost = EstimatedCost(get_device("rtx3090"), registry())
        sample = {dim.name: dim.low for dim in self.graph.dims}
        problem = ShapedProgram(self.graph, cost, range(len(self.graph.nodes)), sample).problem
        # Gradients that wait for their updates cannot be evicted.
        order = early_updates.solve(PlanningProblem(problem, 0), Limits()).require().sequence
        self.plan = point_plan(self.graph, cost, order, sample, least_budget_bytes=0)
        self.points = PointExecutable(PointProgram(PointsWithin(self.plan, EVERYTHING), spec))
        self.step(self.batch)
        self.state = find_state(self.step)
        self.binding = Binding(captured.steady, self.graph, self.state)
        (self.optimizer,) = self.state.optimizers.values()
        self.tensors = [slot.current() for slot in self.state.tensors]
        self.before = [t.detach().clone() for t in self.tensors], copy.deepcopy(self.optimizer.state_dict())

    def restore(self):
        tensors, optimizer = self.before
        for tensor, content in zip(self.tensors, tensors, strict=True):
            tensor.data.copy_(content)
            tensor.grad = None
        self.optimizer.load_state_dict(copy.deepcopy(optimizer))
        torch.manual_seed(1)

    def at(self, sizes):
        """A batch of other sizes, by dim."""
        made = {}
        for key, like in self.batch.items():
            shape = [sizes.get(axis, n) for axis, n in enumerate(like.shape)]
            is_number = like.dtype.is_floating_point
            made[key] = torch.randn(shape) if is_number else torch.randint(0, 10, shape, dtype=like.dtype)
        return made

    def results(self, call):
        self.restore()
        loss = call()
        return [loss.detach().clone(), *(t.detach().clone() for t in state_tensors(self.state))]

    def points_run(self, batch):
        return self.binding.write_back(self.points.run(self.binding.read((batch,), {})))

    def check(self, sizes, shares):
        batch = self.at(sizes)
        expected = self.results(lambda: self.step(batch))
        named = {dim.name: sizes[int(dim.name.rpartition("_")[2])] for dim in self.graph.dims}
        whole = self.plan.shaped.at(named).peak_bytes
        persistent = self.plan.shaped.persistent_size.evaluate(named)
        for share in shares:
            self.points.budget_bytes = (
                EVERYTHING if share == 100 else persistent + (whole - persistent) * share // 100
            )
            found = self.results(lambda: self.points_run(batch))
            assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
            totals = self.points.totals
            assert (totals.evicted > 0) == (share < 100)
            assert totals.peak_bytes <= (whole if share == 100 else self.points.budget_bytes)
            self.restore()
            tensors = [*state_tensors(self.state), *batch.values()]
            with LiveBytesMeter(tensors) as meter:
                self.points_run(batch)
            assert meter.peak_bytes <= totals.peak_bytes


def test_a_perceptron_with_any_number_of_rows():
    pair = Pair("mlp@tiny,layers=6", {0: (1, 64)})
    for rows in (40, 64, 57):
        pair.check({0: rows}, (100, 85))
    assert pair.points.program.source.count("def program(") == 1
