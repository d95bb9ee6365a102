"""What a method is: names, and a method of one's own through the same training."""

from __future__ import annotations

import numpy as np
import pytest

import tether
from tether import Recipe, train
from tether.learn.learner import Method
from tether.learn.methods import METHODS, method_of
from tether.learn.rl import RL

ENV = tether.envs.Carbon()
DATA = tether.data.synthetic_carbon(seed=0, n=20)
CERTIFICATE = tether.LipschitzCertificate(ENV.contract(2.0, 2.0), ENV.sensitivity)
QUICK = {"seeds": [0], "recipe": Recipe(passes=2, batch=10, width=4)}


def test_every_method_is_found_by_its_name_and_is_equal_to_another_of_its_kind():
    assert [method_of(each.name) for each in METHODS] == list(METHODS)
    assert [each.name for each in METHODS] == ["prior", "random+acd", "rl", "rl+acd", "crl", "acrl"]
    assert method_of("rl") == RL() != method_of("rl+acd")
    assert f"{method_of('rl+acd')}" == "rl+acd"


def test_what_a_method_knows_of_the_contract_decides_whether_one_training_serves_all_settings():
    once = {
        mode: {each.name for each in METHODS if each.trained_once(mode)} for mode in ("offline", "online")
    }
    assert once == {"offline": {"prior", "random+acd", "rl", "rl+acd"}, "online": {"prior", "rl"}}
    assert {each.name for each in METHODS if each.guarded} == {"random+acd", "rl+acd", "acrl"}
    assert method_of("rl+acd").learned_by("offline") == method_of("rl")
    assert method_of("rl+acd").learned_by("online") == method_of("rl+acd")


def test_a_name_and_its_method_train_to_the_same_policy():
    by_name, by_object = (train(method, ENV, DATA, CERTIFICATE, **QUICK) for method in ("rl", RL()))
    assert by_name.method == by_object.method
    for mine, its in zip(by_name.policies.weights, by_object.policies.weights, strict=True):
        np.testing.assert_array_equal(mine, its)


class Lazy(Method):
    """A method of one's own: the reward does not matter."""

    name = "lazy"
    title = "Lazy"

    def loss(self, policy, own, batch, certificate, recipe):
        value, outcome = super().loss(policy, own, batch, certificate, recipe)
        return 0.0 * value, outcome


def test_a_method_of_ones_own_is_trained_like_ours():
    lazy = train(Lazy(), ENV, DATA, CERTIFICATE, **QUICK)
    untrained = train("random+acd", ENV, DATA, CERTIFICATE, **QUICK)
    assert str(lazy.method) == "lazy"
    assert lazy.history.rewards.shape == (2, 1, 1)
    np.testing.assert_allclose(lazy.policies.weights[0], untrained.policies.weights[0], rtol=1e-6)
    with pytest.raises(ValueError, match="method must be one of"):
        train("lazy", ENV, DATA, CERTIFICATE, **QUICK)
