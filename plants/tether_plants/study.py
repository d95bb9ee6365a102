"""A study of one plant: prior, learners with and without a guard, audited in the original environment."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tether
from tether.certificates import Certificate
from tether.core.files import complete_file
from tether.gym import Guarded
from tether_plants.plant import Learned, Plant
from tether_plants.summary import section


class Played(NamedTuple):
    """Episodes of the original environment."""

    rewards: np.ndarray
    """[N, H]."""
    costs: np.ndarray
    """[N, H], cost units."""
    actions: np.ndarray
    """[N, H, n] what was played."""
    uncertified_from: np.ndarray
    """[N] the round from which on the guard certified nothing; H + 1 if it certified all, 1 without a guard."""
    intervened: np.ndarray
    """[N, H] whether the guard moved the proposal."""
    seconds: float
    """Of the processor, all of it."""


def play(
    plant: Plant,
    episodes: Sequence[int],
    policy: Learned | None,
    certificate: Certificate | None = None,
    *,
    online: bool = False,
) -> Played:
    """Play these episodes in the original environment: the prior if there is no policy, else through the guard if any.

    All episodes side by side if the policy can, else one after the other through `tether.gym.Guarded`; `online` asks
    for the latter. Every episode has all rounds of the contract; an adapter whose environment ends earlier goes on.
    """
    if policy is not None and policy.rows is not None and not online:
        return _side_by_side(plant, episodes, policy, certificate)
    env: Any = plant.make()
    if certificate is not None:
        env = Guarded(env, certificate, plant.prior, append_memory=policy is not None and policy.memory)
    horizon, started, rows = plant.contract.horizon, time.process_time(), []
    for episode in episodes:
        observation, _ = env.reset(options={"episode": int(episode)})
        row: list[Any] = []
        report: dict[str, Any] = {}
        for _ in range(horizon):
            action = plant.prior(observation) if policy is None else policy.propose(env, observation)
            observation, reward, terminated, truncated, info = env.step(action)
            report = info.get("tether", {})
            moved = bool(report.get("intervened", False))
            row.append((float(reward), info["cost"], np.asarray(report.get("action", action)), moved))
            if terminated or truncated:
                break
        if len(row) != horizon:
            raise ValueError(
                f"an episode of {plant.name} must have {horizon} rounds, got {len(row)} of episode {episode}"
            )
        rewards, costs, actions, intervened = (np.array(each) for each in zip(*row, strict=True))
        rows.append((rewards, costs, actions, report.get("uncertified_from", 1), intervened))
    together = [np.array(each) for each in zip(*rows, strict=True)]
    return Played(*together, time.process_time() - started)


def _side_by_side(plant: Plant, episodes: Any, policy: Any, certificate: Certificate | None) -> Played:
    """All episodes at once."""
    from tether_plants.rows import Rows

    rows, started = Rows(plant, certificate, len(episodes)), time.process_time()
    observations, steps = rows.reset(episodes), []
    for _ in range(plant.contract.horizon):
        steps.append(rows.step(policy.rows(observations, rows.features())))
        observations = rows.observations
    rows.release()
    rewards, costs, actions, moved, breached = (
        np.stack([step[name] for step in steps], axis=1)
        for name in ("rewards", "costs", "actions", "moved", "breached")
    )
    certified = np.sum(~breached, axis=1) + 1 if certificate is not None else np.ones(len(costs), dtype=int)
    return Played(rewards, costs, actions, certified, moved, time.process_time() - started)


def row_of(plant: Plant, played: Played, prior: Played, seed: int, **who: Any) -> dict[str, Any]:
    """What is told of a run: its mean return, and the audit against the prior on the same episodes."""
    verdict = tether.audit(
        played.costs, prior.costs, plant.contract, uncertified_from=played.uncertified_from
    )
    rounds = played.costs.size
    return {
        "seed": seed,
        **who,
        "episodes": len(played.costs),
        "return": float(played.rewards.sum(axis=1).mean()),
        "prior_return": float(prior.rewards.sum(axis=1).mean()),
        "gains": np.round((played.rewards - prior.rewards).sum(axis=1), 9).tolist(),
        "cost": float(played.costs.sum(axis=1).mean()),
        "prior_cost": float(prior.costs.sum(axis=1).mean()),
        "violation_rate": verdict.violation_rate,
        "worst_margin": verdict.worst_margin,
        "breaches": int(np.sum(played.uncertified_from <= plant.contract.horizon))
        if who["certificate"]
        else 0,
        "measures": {name: [of(played), of(prior)] for name, of in plant.measures.items()},
        "moved": float(played.intervened.mean()),
        "milliseconds": 1e3 * played.seconds / rounds,
    }


def study(
    plant: Plant,
    *,
    seeds: int = 5,
    episodes: int = 200,
    out: str | Path,
    learners: Sequence[str] | None = None,
    certificates: Sequence[str] | None = None,
    report: Callable[[str], Any] = print,
) -> dict[str, Any]:
    """Play everything, and write `results.json` and what the figure needs to the folder `out`.

    What an earlier run left there of the same contract, with at least as many episodes, is not played again, and goes
    on where it was interrupted: each row is kept as soon as it is played. To play all of it again, remove the folder.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    names = list(plant.certificates if certificates is None else certificates)
    episodes = min(episodes, plant.most or episodes)
    rows, traces = _left(folder, plant)
    wanted = [
        (seed, learner, name)
        for seed in range(seeds)
        for learner in (plant.learners if learners is None else learners)
        for name in (None, *names)
    ]
    open_rows = [who for who in wanted if rows.get(who, _NOTHING)["episodes"] < episodes]
    report(f"{plant.name}: {len(wanted) - len(open_rows)} of {len(wanted)} rows are there")
    checks = plant.checks(max(2, min(episodes, 20)))
    for check in checks:
        verdict = "holds" if check.holds else "FAILS"
        report(f"{plant.name}: {verdict}  {check.what}: {check.worst:.3g} of {check.allowed:.3g}")
    absent = {name: why() for name, why in plant.absent.items()}
    for name, why in absent.items():
        report(f"{plant.name}: no {name} certificate: {why}")
    prior: Played | None = None
    for place, (seed, learner, name) in enumerate(open_rows):
        test = plant.episodes(seed, episodes)[1]
        if place == 0 or seed != open_rows[place - 1][0]:
            prior = play(plant, test, None)
            who = {"learner": "prior", "certificate": None, "training": {}, "seconds": prior.seconds}
            told = row_of(plant, prior, prior, seed, **who)
            if rows.get((seed, "prior", None), _NOTHING)["episodes"] < episodes:
                rows[seed, "prior", None] = told
        assert prior is not None
        started = time.process_time()
        policy = plant.learners[learner](plant, seed, name)
        certificate = None if name is None else plant.certificates[name](plant.contract)
        played = play(plant, test, policy, certificate)
        taken = time.process_time() - started
        who = {"learner": learner, "certificate": name, "training": dict(policy.training), "seconds": taken}
        row = row_of(plant, played, prior, seed, **who)
        rows[seed, learner, name] = row
        if seed == 0:
            traces["prior"] = prior.costs[0].tolist()
            traces[f"{learner} {name or 'unguarded'}"] = played.costs[0].tolist()
        there = len(wanted) - len(open_rows) + place + 1
        _write(folder, plant, rows, checks, absent, traces)
        report(f"{plant.name:>10} {there:3d} of {len(wanted)}  {line(row)}")
    return _write(folder, plant, rows, checks, absent, traces)


def line(row: dict[str, Any]) -> str:
    """A row, for the terminal."""
    return (
        f"seed {row['seed']}  {row['learner']:>8}  {row['certificate'] or 'unguarded':>10}  "
        f"{row['return']:10.3f} (prior {row['prior_return']:.3f})  violations {row['violation_rate']:.1%}  "
        f"worst margin {row['worst_margin']:.3g}  {row['milliseconds']:.2f} ms a round, "
        f"{row['seconds']:.1f} s in all"
    )


_NOTHING = {"episodes": 0}
"""A row that is not there."""


def _left(folder: Path, plant: Plant) -> tuple[dict[tuple[Any, ...], Any], dict[str, Any]]:
    """(rows by seed, learner and certificate, traces) of an earlier run, if it was one of the same contract."""
    file = folder / "results.json"
    if file.exists():
        found = json.loads(file.read_text(encoding="utf-8"))
        if found["contract"] == plant.contract.to_dict():
            rows = {(row["seed"], row["learner"], row["certificate"]): row for row in found["rows"]}
            return rows, found["traces"]
    return {}, {}


def _write(
    folder: Path, plant: Plant, rows: Any, checks: Any, absent: Mapping[str, str], traces: Any
) -> dict[str, Any]:
    results: dict[str, Any] = {
        "plant": plant.name,
        "title": plant.title,
        "source": plant.source,
        "prior": plant.prior_title,
        "cost": plant.cost_title,
        "reward": plant.reward_title,
        "contract": plant.contract.to_dict(),
        "most": plant.most,
        "rows": [rows[who] for who in sorted(rows, key=lambda each: (each[0], each[1] != "prior"))],
        "checks": [{**asdict(check), "holds": check.holds} for check in checks],
        "absent": absent,
        "traces": traces,
    }
    results["sections"] = [section(results)]
    with complete_file(folder / "results.json") as draft:
        draft.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return results
