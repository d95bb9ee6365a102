"""The client: the same decisions as a guard in the process, and an action whatever happens to the service."""

from __future__ import annotations

import asyncio
import random
import time

import httpx
import numpy as np
import pytest

import tether
from serving import Stack, awaited, certificate, prior
from tether.serve import simulated
from tether.serve.client import AsyncClient, Client, NoBackup, Played, Refusal
from tether.serve.config import LimitsTable
from tether.serve.plant import Plant
from tether.serve.service import Service
from tether.systems import registry


class Flaky(httpx.AsyncBaseTransport):
    """Loses requests, or the answers to them, as `fate` says: "request", "answer", "slow" or None.

    Where it is "too late" the deadline is over with it, whatever the time; so nothing depends on a busy machine.
    """

    def __init__(self, asgi, fate=lambda: None):
        self._inside = httpx.ASGITransport(asgi)
        self.fate = fate
        self.posts = 0

    async def handle_async_request(self, request):
        self.posts += 1
        fate = self.fate()
        if fate == "request":
            raise httpx.ConnectError("lost on the way")
        if fate == "request, too late":
            raise TimeoutError
        answer = await self._inside.handle_async_request(request)
        if fate == "answer":
            raise httpx.ReadError("the answer was lost")
        if fate == "answer, too late":
            raise TimeoutError
        if fate == "slow":
            await asyncio.sleep(10.0)
        return answer


def connected(stack, plant="boiler", fate=lambda: None, token="control", **options):
    options = {"prior": prior, "deadline": 30.0} | options
    flaky = Flaky(stack.application.asgi, fate)
    return Client(
        "http://127.0.0.1", plant, stack.tokens.get(token, token), transport=flaky, **options
    ), flaky


@pytest.fixture
def stack(tmp_path):
    return Stack(tmp_path, limits=LimitsTable(requests_per_second=1e9))


def test_without_faults_the_decisions_are_those_of_a_guard(stack):
    guard = tether.Guard(certificate(), prior, low=-10.0, high=10.0)
    client, flaky = connected(stack)
    with client:
        client.reset("monday")
        for temperature, wish, cost in ((18.0, 9.0, 1.2), (19.0, float("nan"), 1.1), (20.5, -0.1, 1.0)):
            decision = guard.act(temperature, wish)
            played = client.act(temperature, wish)
            assert (played.action, played.reason) == (decision.action, decision.reason)
            assert played.decided
            assert played.answer["margin"] == decision.margin
            guard.observe(cost)
            client.observe(cost)
        assert client.unsent == 0
        assert flaky.posts == 7  # one for each call
    shown = stack.service.status()["plants"]["boiler"]
    assert shown["decisions"] == 3


def test_when_nothing_answers_the_backup_is_played_and_told_later(tmp_path):
    stack = Stack(tmp_path, Service({"boiler": Plant(certificate(horizon=4), prior, low=-10.0, high=10.0)}))
    fate = [None]
    client, _ = connected(stack, fate=lambda: fate[0])
    with client:
        client.reset("e")
        first = client.act(18.0, 9.0)
        client.observe(1.2)
        fate[0], client._client.deadline = "request", 0.1
        second = client.act(19.0, 9.0)
        assert (second.action, second.decided, second.reason, second.backup) == (
            1.0,
            False,
            "no answer",
            "prior",
        )
        assert "lost on the way" in second.problem
        client.observe(1.1)
        assert client.unsent == 2
        fate[0], client._client.deadline = None, 30.0
        third = client.act(18.0, 9.0)  # what was not sent is sent before it
        assert third.decided
        assert third.answer["account"] == 3
        client.observe(1.0)
    rounds = stack.service.status()["plants"]["boiler"]["episodes"][0]["rounds"]
    assert [each["applied"] for each in rounds] == [first.action, 1.0, third.action]
    assert [each["cost"] for each in rounds] == [1.2, 1.1, 1.0]


def test_an_answer_that_was_lost_is_not_played_and_the_account_is_kept_with_what_was(stack):
    fate = [None]
    client, flaky = connected(stack, fate=lambda: fate[0])
    with client:
        client.reset("e")
        fate[0], client._client.deadline = "answer", 0.5  # the service has decided, but nobody knows
        played = client.act(18.0, 9.0)
        assert (played.action, played.decided) == (2.0, False)
        assert flaky.posts > 2  # tried again with the same content
        fate[0], client._client.deadline = None, 30.0
        client.observe(1.2)
        assert client.unsent == 0
    episode = stack.service.status()["plants"]["boiler"]["episodes"][0]
    assert episode["rounds"][0]["action"] == pytest.approx(2.75, abs=1e-3)
    assert episode["rounds"][0]["applied"] == 2.0
    assert episode["account"] == 2


def test_the_deadline_holds_however_slow_the_service_is(stack):
    client, _ = connected(stack, fate=lambda: "slow", deadline=0.05)
    with client:
        for call in (client.reset, lambda: client.act(18.0, 9.0), lambda: client.observe(1.0), client.flush):
            start = time.perf_counter()
            call()
            assert time.perf_counter() - start < 9.0


def test_a_client_without_a_backup_says_what_to_give_it(stack):
    client, _ = connected(stack, prior=None, fate=lambda: "request", deadline=0.02)
    with client:
        client.reset("e")
        with pytest.raises(NoBackup, match="give the client prior="):
            client.act(18.0, 9.0)
        with pytest.raises(RuntimeError, match="round 1 has no action yet"):
            client.observe(1.0)


@pytest.mark.parametrize(
    ("options", "message"), [({"token": "nobody"}, "known token"), ({"plant": "kiln"}, "no plant 'kiln'")]
)
def test_an_episode_that_will_not_be_guarded_is_refused_at_its_start(options, message, stack):
    client, _ = connected(stack, **options)
    with client, pytest.raises(Refusal, match=message):
        client.reset()


def test_a_refused_round_is_played_by_the_backup_and_says_why(stack):
    client, _ = connected(stack)
    with client:
        client.reset("e")
        client.act(18.0, 9.0)
        client.observe(1.0)
        stack.service.end("boiler", "e", "ana", "a test")
        played = client.act(19.0, 9.0)
        assert (played.action, played.decided, played.reason) == (1.0, False, "refused")
        assert "is over" in played.problem
        with pytest.raises(RuntimeError, match="round 2 has an action"):
            client.act(19.0, 9.0)


def test_a_prior_of_the_client_is_sent_along_and_vectors_come_as_arrays(tmp_path):
    bounds = tether.LipschitzCertificate(
        tether.Contract(lam=0.5, b=1.0, horizon=3, cost_floor=1.0),
        tether.Sensitivity(2.0, 1.0, tether.geometric(0.5)),
    )
    stack = Stack(tmp_path, Service({"boiler": Plant(bounds, None)}))
    client, _ = connected(stack, prior=lambda x: np.array([1.0, x["t"]]), sends_prior=True)
    with client:
        client.reset()
        played = client.act({"t": 2.0, "more": [1.0, 2.0]}, np.array([1.5, 2.0], dtype=np.float32))
        assert played.decided
        assert played.action.shape == (2,)
        client.observe(None)
        client.report(1, 1.25)
        assert client.unsent == 0
    assert stack.service.status()["plants"]["boiler"]["episodes"][0]["cost"] == 1.25
    with pytest.raises(ValueError, match="sends_prior needs the prior"):
        Client("http://127.0.0.1", "boiler", sends_prior=True)


def test_the_asynchronous_client_does_the_same(stack):
    async def loop():
        transport = Flaky(stack.application.asgi)
        async with AsyncClient(
            "http://127.0.0.1", "boiler", stack.tokens["control"], prior=prior, transport=transport
        ) as client:
            name = await client.reset()
            played = await client.act(18.0, 9.0)
            await client.observe(1.2, override="ana: a test", applied=1.0)
            assert await client.flush()
            return name, played

    name, played = awaited(loop())
    assert played.action == pytest.approx(2.75, abs=1e-3)
    assert stack.service.status()["plants"]["boiler"]["episodes"][0]["episode"] == name


def test_a_long_absence_is_caught_up_with_in_several_requests(tmp_path):
    horizon = 80
    stack = Stack(
        tmp_path,
        Service({"boiler": Plant(certificate(horizon), prior)}),
        LimitsTable(requests_per_second=1e9),
    )
    fate = ["request, too late"]
    client, _ = connected(stack, fate=lambda: fate[0])
    with client:
        client.reset("long")
        for _ in range(horizon - 1):
            assert not client.act(18.0, 9.0).decided
            client.observe(1.2)
        fate[0] = None
        assert client.act(18.0, 9.0).decided
        client.observe(1.2)
        assert client.unsent == 0
    assert stack.service.status()["plants"]["boiler"]["decisions"] == horizon


@pytest.mark.parametrize("kept", [None, 0, 1, 2])
def test_rounds_that_the_service_answered_and_lost_are_sent_again(kept, tmp_path):
    def fresh():
        return Service({"boiler": Plant(certificate(horizon=6), prior, low=-10.0, high=10.0)})

    undisturbed, stack = fresh(), Stack(tmp_path, fresh())
    client, _ = connected(stack)
    with client:
        client.reset("e")
        played = [_round(client) for _ in range(3)]
        lost = fresh()  # as it was after the reset and so many rounds; None: nothing at all was on the disk
        if kept is not None:
            lost.reset("boiler", "e")
        for number in range(1, (kept or 0) + 1):
            answer = lost.act("boiler", "e", number, 18.0, 9.0)
            lost.observe("boiler", "e", number, 1.2, applied=answer.action)
        stack.application.service = lost
        fourth = client.act(18.0, 9.0)
        assert fourth.action == 2.0
        assert fourth.reason == ("no answer" if kept is None else "gap")
        client.observe(1.2)
        assert client.flush()
        fifth = client.act(18.0, 9.0)
        assert fifth.decided
        assert fifth.answer["account"] == 5
    undisturbed.reset("boiler", "e")
    for number in range(1, 6):
        answer = undisturbed.act("boiler", "e", number, 18.0, 9.0)
        assert answer.action == [*played, answer.action, fifth.action][number - 1]
        undisturbed.observe("boiler", "e", number, 1.2, applied=2.0 if number == 4 else answer.action)


def _round(client):
    action = client.act(18.0, 9.0).action
    client.observe(1.2)
    return action


class Unguarded:
    """What the client would be without a guard."""

    def reset(self):
        return "free"

    def act(self, observation, proposal):
        return Played(1, proposal, True, "prior", "safe")

    def observe(self, cost, **_):
        pass


@pytest.mark.parametrize("name", ["carbon", "inference", "cooling"])
def test_whatever_is_lost_the_promise_is_kept(name, tmp_path, monkeypatch):
    monkeypatch.setattr(simulated, "WILD", 1.0)
    system, lam, b, horizon = registry.find(name), 0.3, 0.3, 12
    env = system.env()
    policies = simulated.policies_of(env, lam, b, horizon)
    for seed in range(3):
        rng = random.Random(seed)
        plant = Plant(
            tether.Structured(env.contract(lam, b, horizon), env.structure),
            env.prior,
            env.low,
            env.high,
            env.norm,
        )
        folder = tmp_path / str(seed)
        folder.mkdir()
        stack = Stack(folder, Service({"p": plant}), LimitsTable(requests_per_second=1e9))

        def fate(rng=rng):
            return rng.choices((None, "request, too late", "answer, too late"), (5, 2, 2))[0]

        client, _ = connected(stack, "p", fate, prior=None, backups=policies)
        with client:
            rounds = []
            for each in simulated.live(client, system, lam, b, horizon=horizon, seed=seed):
                assert each.kept, each
                rounds.append(each)
                if len(rounds) == 3 * horizon:
                    break
        assert 0 < sum(each.decided for each in rounds) < len(rounds)
    free = simulated.live(Unguarded(), system, lam, b, horizon=horizon, seed=0)
    assert not all(next(free).kept for _ in range(3 * horizon))
