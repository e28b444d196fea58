"""From a specification such as `gpt2@small,bf16,batch=2` to a function that builds the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from neaptide.errors import TargetError, UsageError
from neaptide.zoo.catalogue import MODELS
from neaptide.zoo.model import COMMON_DEFAULTS, PRECISIONS, SIZES, Batch, Step, ZooModel

MAY_BE_ZERO: Final = frozenset({"seed", "attention_level"})

_READERS: Final[Mapping[type, Callable[[str], Any]]] = {
    bool: lambda text: {"true": True, "false": False}[text.lower()],
    int: int,
    float: float,
    tuple: lambda text: tuple(int(part) for part in text.split("-")),
    str: str,
}


def names() -> tuple[str, ...]:
    """Names of all models, in catalogue order; imports no framework."""
    return tuple(MODELS)


def get(name: str) -> ZooModel:
    """The catalogue entry of a model.

    Raises:
        TargetError: there is no model of that name.
    """
    try:
        return MODELS[name]
    except KeyError:
        raise TargetError(
            f"no zoo model is called {name!r}", next_step=f"choose one of: {', '.join(MODELS)}"
        ) from None


def parse_spec(spec: str) -> tuple[ZooModel, dict[str, Any]]:
    """The model, and all keyword arguments of its `build`, that `NAME[@SIZE][,OPTION...]` says.

    An option is `key=value`, or a bare precision such as `bf16`. A value is read in the type of the size's own value:
    `batch=4`, `lr=0.1`, `layers=1-1-1-1` (a tuple of integers), `deep_supervision=true`. A missing size is `tiny`.

    Raises:
        TargetError: unknown model or size.
        UsageError: an option that the model does not have, or a value that cannot be read.
    """
    target, *options = (part.strip() for part in spec.split(","))
    name, _, size = target.partition("@")
    model = get(name)
    size = size or "tiny"
    if size not in model.sizes:
        raise TargetError(
            f"zoo model {name!r} has no size {size!r}", next_step=f"choose one of: {', '.join(SIZES)}"
        )
    parameters = {**COMMON_DEFAULTS, **model.sizes[size]}
    for option in options:
        key, equals, text = option.partition("=")
        if not equals and key in PRECISIONS:
            parameters["precision"] = key
            continue
        if not equals:
            raise UsageError(
                f"zoo option {option!r} is neither key=value nor a precision",
                where=spec,
                next_step=f"precisions: {', '.join(PRECISIONS)}; keys: {', '.join(parameters)}",
            )
        _check_key(model, key, parameters)
        parameters[key] = _read_value(key, text, parameters[key])
    return model, parameters


def factory(spec: str, **overrides: Any) -> Callable[[], tuple[Step, Batch]]:
    """A function without arguments that builds `(step, batch)`; the same numbers at each call.

    Args:
        spec: `NAME[@SIZE][,OPTION...]`, see `parse_spec`.
        overrides: options again, as Python values; they win over those in `spec`.

    Returns:
        A picklable callable. Building seeds torch's global generator with the option `seed`.

    Raises:
        TargetError: unknown model or size.
        UsageError: unknown option or a value of the wrong type.
        MissingExtra: (when called) torch or transformers is not installed.
    """
    model, parameters = parse_spec(spec)
    for key, value in overrides.items():
        _check_key(model, key, parameters)
        parameters[key] = _checked(key, value, parameters[key])
    if parameters["precision"] not in PRECISIONS:
        raise UsageError(
            f"unknown precision {parameters['precision']!r}",
            next_step=f"choose one of: {', '.join(PRECISIONS)}",
        )
    return partial(model.build, **parameters)


def _check_key(model: ZooModel, key: str, parameters: Mapping[str, Any]) -> None:
    if key not in parameters:
        raise UsageError(
            f"zoo model {model.name!r} has no option {key!r}",
            next_step=f"its options: {', '.join(parameters)}",
        )


def _read_value(key: str, text: str, like: Any) -> Any:
    """Read `text` in the type of `like`."""
    try:
        value = _READERS[type(like)](text)
    except (ValueError, KeyError):
        raise UsageError(
            f"zoo option {key}={text!r} cannot be read", next_step=f"write it like {key}={_written(like)}"
        ) from None
    return _checked(key, value, like)


def _checked(key: str, value: Any, like: Any) -> Any:
    """`value`, if it has the type of `like` and counts are positive."""
    if not _is_like(value, like):
        raise UsageError(
            f"zoo option {key}={value!r} cannot be used", next_step=f"write it like {key}={_written(like)}"
        )
    if key == "dropout" and not 0.0 <= value < 1.0:
        raise UsageError(f"zoo option dropout={value!r} must be at least 0 and below 1")
    counts = value if isinstance(value, tuple) else (value,)
    if type(like) in {int, tuple} and key not in MAY_BE_ZERO and min(counts) < 1:
        raise UsageError(f"zoo option {key}={value!r} must be at least 1")
    return value


def _is_like(value: Any, like: Any) -> bool:
    if isinstance(like, tuple):
        return isinstance(value, tuple) and len(value) > 0 and all(type(part) is int for part in value)
    return type(value) is type(like) or (type(like) is float and type(value) is int)


def _written(value: Any) -> str:
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()
