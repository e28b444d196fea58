"""Builds ordering problems in their neutral form `neaptide.order/1`: plain dicts, ready for `json.dumps`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

ORDER_FORMAT: Final = "neaptide.order/1"

OrderForm = dict[str, Any]
"""`{"format", "storages": [{"id", "nbytes", ...}], "ops": [{"id", "reads", "writes", ...}]}`."""


class FormBuilder:
    """An ordering problem in the making; operations are listed in the order in which they are added.

    >>> form = FormBuilder()
    >>> made = form.op("make", reads=[form.storage(8)], sizes=[4])
    >>> [op["writes"] for op in form.finish()["ops"]]
    [['t1']]
    """

    def __init__(self) -> None:
        self._storages: list[dict[str, Any]] = []
        self._place: dict[str, int] = {}
        self._ops: list[dict[str, Any]] = []

    @property
    def op_count(self) -> int:
        return len(self._ops)

    def storage(self, nbytes: int, *, resident: bool = False) -> str:
        """A new storage; without a writer it is an input, freed after its last reader unless `resident`."""
        place = len(self._storages)
        name = f"t{place}"
        self._place[name] = place
        row: dict[str, Any] = {"id": name, "nbytes": int(nbytes)}
        if resident:
            row["resident"] = True
        self._storages.append(row)
        return name

    def op(
        self,
        kind: str,
        *,
        reads: Iterable[str] = (),
        sizes: Iterable[int] = (),
        writes: Iterable[str] = (),
        workspace: int = 0,
        in_place: Iterable[tuple[int, str]] = (),
        after: Iterable[str] = (),
    ) -> list[str]:
        """Append an operation; returns its new storages.

        Args:
            kind: the op is named `KIND_NUMBER`.
            reads: storages that it needs; duplicates are dropped.
            sizes: bytes of the new storages that it makes.
            writes: storages there already that it changes.
            workspace: scratch bytes.
            in_place: `(i, read)`: the i-th new storage may take over the bytes of `read`.
            after: op ids that must come first, beside those that data demands.
        """
        made = [self.storage(size) for size in sizes]
        row: dict[str, Any] = {
            "id": f"{kind}_{len(self._ops)}",
            "reads": list(dict.fromkeys(reads)),
            "writes": [*dict.fromkeys(writes), *made],
        }
        if workspace:
            row["workspace"] = int(workspace)
        pairs = [[made[i], read] for i, read in in_place]
        if pairs:
            row["in_place"] = pairs
        earlier = list(dict.fromkeys(after))
        if earlier:
            row["after"] = earlier
        self._ops.append(row)
        return made

    def last_op(self) -> str:
        """Id of the operation added last."""
        return str(self._ops[-1]["id"])

    def keep(self, *storages: str) -> None:
        """Mark storages as outputs: there at the end."""
        for name in storages:
            self._storages[self._place[name]]["output"] = True

    def finish(self, name: str = "") -> OrderForm:
        """The neutral form, with a name for reports."""
        named = {"name": name} if name else {}
        return {"format": ORDER_FORMAT, **named, "storages": self._storages, "ops": self._ops}
