"""The attack on several contracts and on switches at full length: `python tools/attack_wider.py --episodes 1000000`.

The systems, hostile draws and policies are those of tests/test_adversarial_wider.py, with other seeds: 1 and up. Prints
what was played, how often a promise was broken behind the guard and without it, and how near the bound the costs came;
`--loosened` says 5 % too much of each cost in turn, and of the switches, and must find violations.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import test_adversarial_wider as wider

BATCH = 20_000
CONTRACTS = ((0.5, 1.0), (0.0, 2.0), (2.0, 0.0), (0.0, 0.0))


def main() -> None:
    """Attack, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=1_000_000, help="of each of the two")
    parser.add_argument("--loosened", action="store_true")
    options = parser.parse_args()
    for case, play in cases(options.loosened).items():
        found = {"case": case, "episodes": 0, "violations": 0, "unguarded": 0, "nearest": 1.0}
        share = 4 if case.startswith("several") else 2 * len(CONTRACTS)
        while found["episodes"] < options.episodes / share:
            verdict, unguarded = play(1 + found["episodes"] // BATCH)
            found["episodes"] += BATCH
            found["violations"] += int(np.sum(np.any(verdict.violations, axis=1)))
            found["unguarded"] += int(np.sum(np.any(unguarded.violations, axis=1)))
            each = verdict.values() if hasattr(verdict, "values") else [verdict]
            nearest = min(float(np.min(one.margins / np.maximum(one.bounds, 1e-12))) for one in each)
            found["nearest"] = min(found["nearest"], nearest)
        print(json.dumps(found), flush=True)


def cases(loosened):
    """What is attacked, by name: a function of the seed."""
    made = {}
    for pair in wider.PAIRS:
        for place in (0, 1) if loosened else (None,):
            name = f"several {pair}" + ("" if place is None else f", cost {place} loosened")
            made[name] = lambda seed, pair=pair, place=place: wider.attack_two(BATCH, seed, pair, place)[:2]
    for name in wider.STEPS:
        for contract in CONTRACTS:
            made[f"switches {name} {contract}"] = lambda seed, name=name, contract=contract: (
                wider.attack_steps(name, BATCH, seed, contract, 1.05 if loosened else 1.0)
            )
    return made


if __name__ == "__main__":
    main()
