"""A `results.json` with made-up numbers: everything that a page can show, without a run."""

from __future__ import annotations

from itertools import product

import numpy as np

from tether.paper.results import SCHEMA

GUARDED = ("random+acd", "rl+acd", "acrl")
RULES = ("paper", "released", "tight")
HORIZON = 6
BLOCK = 25
TITLES = {"carbon": "Carbon-aware scheduling", "inference": "Sustainable AI inference"}


def made_results(system="carbon", source="embedded", paper=None):
    """Results of a full run, drawn from a seed of its own: no two numbers are the same."""
    rng = np.random.default_rng(len(system) + len(source))
    lams, bs = ([0.0, 2.0, 6.0], [2.0, 6.0]) if system == "carbon" else ([5.0, 7.0], [6.0])
    seeds, methods, modes = (
        [0, 1],
        ["prior", "random+acd", "rl", "rl+acd", "crl", "acrl"],
        ["offline", "online"],
    )
    ways = [
        {"mode": mode, "method": method, "rule": rule}
        for mode, method in product(modes, methods)
        for rule in (RULES if method in GUARDED else [None])
    ]
    settings = [{"lam": lam, "b": b} for b, lam in product(bs, lams)]
    scores, exploration, tracks = [], [], []
    for way, setting, seed in product(ways, settings, seeds):
        free = way["method"] in ("rl", "crl")
        scores.append(
            {
                **way,
                **setting,
                "seed": seed,
                "reward": 500.0 + 50.0 * rng.random(),
                "regret": 60.0 * rng.random(),
                "cost": 30.0 + 40.0 * rng.random(),
                "worst_cost": 80.0 + 40.0 * rng.random(),
                "violation_rate": float(rng.random()) if free else 0.0,
                "worst_margin": 1.0,
            }
        )
        if way["mode"] == "online":
            exploration.append(
                {
                    **way,
                    **setting,
                    "seed": seed,
                    "episodes": 500,
                    "violation_rate": 0.5 if free else 0.0,
                    "worst_margin": 0.1,
                    "mean_regret": 50.0 * rng.random(),
                    "regret": (60.0 * rng.random(500 // BLOCK)).tolist(),
                }
            )
    for way, setting, episode in product(ways, settings, range(2)):
        if way["mode"] == "offline" and way["method"] != "prior" and way["rule"] in (None, "tight"):
            prior = 4.0 + rng.random(HORIZON)
            track = {
                **way,
                **setting,
                "episode": episode,
                "action": (prior - 0.2).tolist(),
                "proposal": (prior - 0.9).tolist(),
                "prior_action": prior.tolist(),
                "cost": np.cumsum(1.0 + rng.random(HORIZON)).tolist(),
                "bound": np.cumsum(np.full(HORIZON, 5.0)).tolist(),
            }
            if way["method"] in GUARDED:
                track |= {"low": (prior - 0.2).tolist(), "high": (prior + 0.2).tolist()}
            tracks.append(track)
    spread = {"low": [1.0] * HORIZON, "median": [2.0] * HORIZON, "high": [3.0] * HORIZON}
    guards = [
        ("prior", "none"),
        *((learner, guard) for learner in ("random", "greedy") for guard in ("none", *RULES)),
    ]
    return {
        "schema": SCHEMA,
        "system": system,
        "title": TITLES[system],
        "scale": "quick",
        "grid": {
            "lams": lams,
            "bs": bs,
            "seeds": seeds,
            "methods": methods,
            "rules": list(RULES),
            "trained_rules": ["tight"],
            "modes": modes,
        },
        "training": {
            **{"recipe": "tether", "passes": 2, "explored": 500, "block": BLOCK, "learning_rate": 3e-3},
            **{"schedule": "cosine", "batch": 50, "steps": 50, "width": 40},
        },
        "data": {
            "source": source,
            "origin": {"embedded": "embedded data", "authors": "authors' data"}[source],
            "train_episodes": 60,
            "test_episodes": 40,
            "horizon": HORIZON,
            "sha256": "0" * 64,
        },
        "prior": {"reward": 495.7, "cost": 27.8, "worst_cost": 34.4},
        "bounds": [
            {**each, "cost": 100.0 + each["lam"] + each["b"], "worst_cost": 150.0 + each["lam"] + each["b"]}
            for each in settings
        ],
        "scores": scores,
        "exploration": exploration,
        "guard": {
            "lam": lams[1] if system == "carbon" else lams[0],
            "b": bs[0],
            "episodes": 40,
            "rows": [
                {
                    "learner": learner,
                    "guard": guard,
                    "rewards": [500.0, 501.0],
                    "costs": [30.0, 31.0],
                    "worst_cost": 60.0,
                    "violation_rates": [0.9, 0.8] if guard == "none" and learner != "prior" else [0.0, 0.0],
                    "largest_share": 0.5,
                    "worst_margin": 1.0,
                }
                for learner, guard in guards
            ],
            "bound": spread,
            "curves": [
                {"learner": learner, "guard": guard, "cost": spread, "worst_share": [0.5] * HORIZON}
                for learner, guard in guards
            ],
        },
        "boards": [{"label": "energy", "action": 0, "series": ["demand", "renewables"]}],
        "episodes": [
            {
                "demand": [4.0 + i] * HORIZON,
                "renewables": [2.0] * HORIZON,
                "prior_cost": np.cumsum(np.ones(HORIZON)).tolist(),
                "start_hour": i,
            }
            for i in range(2)
        ],
        "tracks": tracks,
        "limit": {
            **{"lam": 2.0, "b": 2.0, "episodes": 2, "prior": 10.0, "attained": 49.0, "upper": 50.0},
            "shares": [
                {
                    **{"mode": "offline", "method": "acrl", "rule": rule, "seed": seed},
                    **{"lam": 2.0, "b": 2.0, "reward": 10.0 + 40.0 * share, "share": share},
                }
                for rule, share in (("paper", 0.5), ("tight", 0.75))
                for seed in (0, 1)
            ],
        },
        "published": [],
        "paper": paper,
        "provenance": {
            "command": f"tether reproduce {system}",
            "python": "3.11",
            "platform": "none",
            "versions": {"numpy": "2"},
        },
    }
