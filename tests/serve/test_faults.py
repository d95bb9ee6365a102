"""Everything fails and the promise holds; broken on purpose, the simulator notices."""

from __future__ import annotations

import dataclasses

import pytest

from tether.serve.campaign import campaign, judge
from tether.serve.fake_disk import FakeDisk
from tether.serve.faults import World
from tether.serve.kills import killed
from tether.serve.sabotage import SABOTAGES


@pytest.fixture(scope="module")
def verdict():
    return campaign(crashes=150, seed=1000)


def test_a_crash_can_cost_freedom_but_never_the_promise(verdict):
    assert verdict.holds, verdict.wrong[:3]
    assert verdict.violations == 0
    assert verdict.unguarded == 1.0
    assert 0.0 <= verdict.worst_margin < 1e-8


def test_the_campaign_is_no_walk_in_the_park(verdict):
    counts = verdict.counts
    assert counts["crashes"] >= 150
    assert min(counts[name] for name in ("power_losses", "cut", "damaged", "refused", "alone", "gaps")) > 0
    assert verdict.looser > 0.2


@pytest.mark.parametrize("name", SABOTAGES)
def test_a_service_that_is_broken_on_purpose_is_found(name):
    broken = campaign(crashes=150 if name == "no-checksum" else 60, seed=1000, sabotage=name)
    assert not broken.holds
    assert (broken.violations > 0) == (name == "free-in-gaps")


def test_a_world_is_the_same_whenever_it_is_played():
    first, second = (dataclasses.asdict(World(seed=1003).run()) for _ in range(2))
    assert first == second
    assert first != dataclasses.asdict(World(seed=1004).run())


def test_nothing_is_shown_where_the_learner_alone_breaks_nothing():
    finding = World(1001).run()
    harmless = [each._replace(unguarded=each.prior) for each in finding.episodes]
    assert not judge([dataclasses.replace(finding, episodes=harmless)]).holds
    assert judge([finding]).holds


def test_an_empty_disk_has_no_bit_to_change():
    import random

    assert not FakeDisk(random.Random(0)).flip()


@pytest.mark.slow
def test_a_real_process_that_is_killed_goes_on_as_it_was(tmp_path):
    finding = killed(tmp_path / "journal", kills=3, seed=0, durability="group")
    assert finding.crashes >= 3
    assert judge([finding]).holds, finding.wrong
