"""Minari: guarded episodes are written, and read as logs and as episodes."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest

import tether
import tether.adapters.episode_env
from tether.adapters.guarded import Guarded
from tether.adapters.minari_log import MinariLog
from tether.data.logs import read_blocks
from tether.data.sources.minari import load_minari
from tether.learn.plant import load_plant
from tether.systems import registry

minari = pytest.importorskip("minari")
pytest.importorskip("h5py")
EPISODES = 6


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A data set of guarded episodes that propose no energy at all, and the log that wrote it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(tmp_path_factory.mktemp("minari")))
        env = gymnasium.make("tether/Carbon-v0", draws=EPISODES)
        plant = env.unwrapped.system
        certificate = tether.LipschitzCertificate(plant.contract(lam=1.0, b=1.0), plant.sensitivity)
        log = MinariLog(Guarded(env, certificate, env.unwrapped.prior))
        for episode in range(EPISODES):
            log.reset(options={"episode": episode})
            over = False
            while not over:
                *_, over, _, _ = log.step([0.0])
        log.reset(seed=0)
        dataset = log.save("carbon/guarded-v0", description="for a test")
        yield log, dataset


def test_what_was_played_is_written_and_what_was_proposed_beside_it(written):
    log, dataset = written
    assert dataset.total_episodes == EPISODES  # the one without a round is none
    for episode, kept in zip(minari.load_dataset("carbon/guarded-v0"), log.episodes, strict=True):
        np.testing.assert_array_equal(np.ravel(episode.actions), np.ravel(kept["actions"]))
        assert len(episode.observations) == len(episode.actions) + 1 == 25
        assert not np.any(episode.infos["proposal"])
        assert np.any(episode.infos["intervened"])
        assert episode.terminations[-1]


def test_a_log_of_it_has_what_an_estimate_needs(written):
    log, _ = written
    columns, blocks = read_blocks("minari:carbon/guarded-v0", {"context": ["demand", "renewables"]})
    (block,) = blocks
    plant = log.unwrapped.system
    assert set(columns.state) == set(plant.observation_names) - {"demand", "renewables"}
    assert block.state.shape == (EPISODES * 24, len(columns.state))
    assert list(block.follows[:25]) == [False] + [True] * 23 + [False]
    np.testing.assert_array_equal(block.next_state[:23], block.state[1:24])
    np.testing.assert_array_equal(
        block.cost, np.concatenate([each["infos"]["cost"] for each in log.episodes])
    )
    prior = [each["infos"]["prior_action"] for each in log.episodes]
    np.testing.assert_array_equal(block.prior, np.concatenate(prior))


def test_the_episodes_are_those_that_nature_drew_and_can_be_trained_on(written):
    log, _ = written
    system = registry.find("carbon")
    read = load_minari("minari:carbon/guarded-v0", system.env().series)
    for name in read.names:
        np.testing.assert_array_equal(read[name], log.unwrapped.episodes[name])
    plant = load_plant(system, Path("minari:carbon/guarded-v0"), 1, 0)
    assert (len(plant.train), len(plant.validation), len(plant.test)) == (3, 1, 2)


def test_a_data_set_that_is_not_there_or_does_not_say_enough_is_refused(written):
    with pytest.raises(ValueError, match="no Minari data set 'nobody/knows-v0' on this machine"):
        load_minari("minari:nobody/knows-v0", ["demand"])
    with pytest.raises(ValueError, match=r"does not say what 'weather' was; it has .*demand"):
        load_minari("minari:carbon/guarded-v0", ["weather"])
    with pytest.raises(ValueError, match="has no column 'eur'"):
        read_blocks("minari:carbon/guarded-v0", {"cost": "eur"})


def test_nothing_played_is_nothing_to_save():
    log = MinariLog(gymnasium.make("tether/Carbon-v0", draws=1))
    with pytest.raises(ValueError, match="no episode was played"):
        log.save("carbon/nothing-v0")
