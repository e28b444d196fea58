"""Write the committed ordering problems: `python benchmarks/make_order_instances.py [--check]`.

Architecture-search networks in the neutral form `neaptide.order/1`, one compact JSON file each in
`benchmarks/instances/order/`, and `index.json` that says how each was made. `--check` writes nothing and fails
if a file differs from what the generators make now.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

from neaptide_corpus.conv_forms import CAPTURED, COMPILED
from neaptide_corpus.nas_networks import GENOTYPES, NAS_NETWORKS, nas_network
from neaptide_corpus.nas_networks_large import LARGE_NETWORKS
from neaptide_corpus.order_forms import OrderForm
from neaptide_corpus.rand_wire import rand_wire

FOLDER: Final = Path(__file__).resolve().parent / "instances" / "order"
RAND_WIRE_SEEDS: Final = (0, 1, 2)
_COMPILED: Final = (
    "batch 1, fp32, batch norm fused, image counted, in place on the first operand of equal size"
)
_CAPTURED: Final = "batch 1, fp32, one op per kernel of PyTorch's dispatcher, image counted, nothing in place"


def instances() -> dict[str, tuple[OrderForm, dict[str, Any]]]:
    """Name -> problem and how it was made."""
    made: dict[str, tuple[OrderForm, dict[str, Any]]] = {}
    for name, (genotype, _, filters) in NAS_NETWORKS.items():
        source = GENOTYPES[genotype].source
        made[name] = (nas_network(name), {"source": source, "filters": filters, "model": _COMPILED})
    for seed in RAND_WIRE_SEEDS:
        wiring = {
            "source": "RandWire, WS(32, 4, 0.75) x 3: Xie et al., ICCV 2019",
            "seed": seed,
            "generator": "neaptide_corpus.rand_wire.watts_strogatz on Python's random.Random; networkx not used",
            "model": _COMPILED + ", views are no operations",
        }
        made[f"rand_wire_{seed}"] = (rand_wire(seed), wiring)
    for name, build in LARGE_NETWORKS.items():
        source = "TensorFlow-Slim and timm, 331 pixels"
        made[name] = (build(CAPTURED), {"source": source, "model": _CAPTURED})
        made[f"{name}_fused"] = (build(COMPILED), {"source": source, "model": _COMPILED})
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    files: dict[str, str] = {}
    index: dict[str, Any] = {}
    for name, (form, how) in instances().items():
        files[f"{name}.json"] = json.dumps({**form, "name": name}, separators=(",", ":")) + "\n"
        index[name] = {"ops": len(form["ops"]), "storages": len(form["storages"]), **how}
    files["index.json"] = json.dumps(index, indent=1) + "\n"
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = FOLDER / name
        same = path.exists() and path.read_text(encoding="utf-8") == text
        if check and not same:
            raise SystemExit(f"{path} is not what the generators make")
        if not same:
            path.write_text(text, encoding="utf-8")
        print(f"{name:32} {len(text):8} bytes  {'as it was' if same else 'written'}")


if __name__ == "__main__":
    main()
