"""The public functions that tie the rooms together: profile, fits, plan, plan_by_trials, apply, compile_step, compare, compare_shapes, run, explain."""

from neaptide.api.applying import apply as apply
from neaptide.api.applying import compile_step as compile_step
from neaptide.api.comparing import compare as compare
from neaptide.api.comparing import compare_shapes as compare_shapes
from neaptide.api.fitting import fits as fits
from neaptide.api.planning import explain as explain
from neaptide.api.planning import plan as plan
from neaptide.api.planning import plan_by_trials as plan_by_trials
from neaptide.api.profiling import profile as profile
from neaptide.api.running import run as run
