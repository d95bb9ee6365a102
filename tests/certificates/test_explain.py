"""Which bound decides about an action: the same numbers as the guard's, and what a change gains."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether
from tether.certificates.explain import explain

ENV = tether.envs.Carbon()


def guarded(lam, b, rounds, seed):
    """A guard of the carbon system after some rounds of a greedy learner, and what it sees next."""
    rng = np.random.default_rng(seed)
    certificate = tether.Structured(ENV.contract(lam=lam, b=b), ENV.structure)
    guard = tether.Guard(certificate, ENV.prior, low=0.0, resolution=0.0)
    backlog = 0.0
    for _ in range(rounds):
        seen = [rng.uniform(1.0, 6.0), 0.0, 0.0, backlog]
        action = guard.act(seen, proposal=0.3 * seen[0]).action
        backlog = max(0.0, backlog + seen[0] - (0.8 + rng.uniform(-0.2, 0.2)) * action)
        guard.observe(backlog**2 + backlog + 1.0)
    return guard, [rng.uniform(1.0, 6.0), 0.0, 0.0, backlog]


@settings(max_examples=25, deadline=None)
@given(
    lam=st.sampled_from([0.0, 0.5, 2.0]),
    b=st.sampled_from([0.0, 0.3, 2.0]),
    rounds=st.integers(0, 5),
    seed=st.integers(0, 10_000),
)
def test_what_it_calls_safe_is_what_the_guard_plays(lam, b, rounds, seed):
    guard, seen = guarded(lam, b, rounds, seed)
    found = explain(guard, seen, 0.0)
    prior, reached = guard.reach(seen, 0.0)
    share = (prior - reached) / prior
    assert found.share == pytest.approx(share, abs=2e-3)
    assert found.safe == (reached == 0.0)
    decision = guard.act(seen, proposal=0.0)
    if not found.safe and decision.action < prior:
        # The margin of this round is what its line leaves.
        line = explain_line(guard, found)
        assert line.at_most == pytest.approx(line.difference - line.credit)


def explain_line(guard, found):
    """The line that binds, looked at."""
    line = found.best.binding
    assert guard.round <= line.round <= line.last <= guard.horizon
    assert line.over == max(each.over for each in found.best.lines)
    return line


@pytest.mark.parametrize(("lam", "b"), [(0.0, 0.3), (0.5, 0.0), (2.0, 0.3)])
def test_the_b_and_the_lam_that_it_asks_for_are_just_enough(lam, b):
    found = {}
    for what, more in (("b", 1.001), ("b", 0.98), ("lam", 1.0), ("lam", 0.9)):
        first = explain(guarded(lam, b, 0, 1)[0], [4.0, 0.0, 0.0, 0.0], 2.0)
        assert not first.safe
        changed = (
            (lam, b + more * first.more_b) if what == "b" else (lam + more * (first.enough_lam - lam), b)
        )
        found[what, more] = explain(guarded(*changed, 0, 1)[0], [4.0, 0.0, 0.0, 0.0], 2.0).safe
    assert found == {("b", 1.001): True, ("b", 0.98): False, ("lam", 1.0): True, ("lam", 0.9): False}


def test_it_reads_as_text_and_as_json_and_knows_the_gap():
    guard, seen = guarded(0.5, 0.3, 4, 0)
    found = explain(guard, seen, 0.0)
    assert json.loads(json.dumps(found.to_dict()))["binding"] == found.best.binding.where
    text = str(found)
    assert f"Round 5 of {guard.horizon}" in text
    assert "What binds is" in text
    assert "Enough would be b larger by" in text
    assert [each.change for each in found.gains] == ["the prior's state known exactly"]
    assert found.gains[0].gain >= 0.0
    assert max(found.gap) > 0.0


def test_what_it_cannot_explain_is_named():
    certificate = tether.LipschitzCertificate(ENV.contract(lam=1.0, b=1.0), ENV.sensitivity)
    with pytest.raises(TypeError, match="got LipschitzCertificate"):
        explain(certificate, [4.0, 0.0, 0.0, 0.0], 1.0)
    structured = tether.Structured(ENV.contract(lam=1.0, b=1.0), ENV.structure)
    with pytest.raises(ValueError, match="prior must be the prior's action"):
        explain(structured, [4.0, 0.0, 0.0, 0.0], 1.0)
    with pytest.raises(ValueError, match="action"):
        explain(structured, [4.0, 0.0, 0.0, 0.0], math.nan, prior=5.0)
