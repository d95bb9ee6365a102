"""A world in which everything fails, deterministic by seed: plants, clients, a network, a disk and a service.

Each plant plays a round a second. Its client asks the service what to play; where no answer comes in time it plays the
prior by itself, and says so. It reports what was played and paid until the account holds it. Requests and answers are
lost, doubled and overtake each other; the service dies between any two operations of its disk, in the middle of a write
too, or loses power; the disk is full or slow for a while, or changes a bit; the clock jumps; the operator says "prior
now" and "resume". What is checked:

1. the promise, in every round, against the prior on the same draws;
2. that a request gets the same answer whenever it is repeated;
3. that what was answered is in the journal after a crash;
4. that the account is in the end that of an undisturbed run, bit for bit.

The plant is one whose constants are exact, and its learner stays at the edge of the safe set, so that an account that
is wrong by a little breaks the promise:

    x' = x/2 + a + w        cost   1 + |x + a|        prior   -x/4        w from 0.5 to 1.5

Under the prior states come 4 times nearer a round; a deviation d costs at most d now and 3/4 d/4^n after n + 1 rounds.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tether.certificates import LipschitzCertificate
from tether.core.contract import Contract
from tether.core.journal import text
from tether.core.journal.journal import Durability, Journal, JournalFailed
from tether.core.journal.segment import JournalDamaged
from tether.core.sensitivity import Sensitivity, geometric
from tether.serve.fake_disk import Crash, FakeDisk
from tether.serve.plant import Plant
from tether.serve.replies import Conflict, Refused, Reply, ServiceError, Unknown
from tether.serve.service import Service

ROUNDS = 12
CONTRACTS = {
    "north": Contract(lam=0.0, b=0.1, horizon=ROUNDS + 1, cost_floor=1.0),
    "south": Contract(lam=0.1, b=0.05, horizon=ROUNDS + 1, cost_floor=1.0),
}
"""By plant. With lam = 0 a learner can come as near to the bound as round-off allows."""
DEADLINE = 0.5
"""When the client plays without an answer, seconds after the round began."""


def prior(observation: list[float]) -> float:
    """The trusted policy."""
    return -0.25 * observation[0]


def cost_of(x: float, action: float) -> float:
    """What a round costs."""
    return 1.0 + abs(x + action)


def after(x: float, action: float, draw: float) -> float:
    """The next state."""
    return 0.5 * x + action + draw


def replayed(draws: list[float], policy: Callable[[int, float], float]) -> list[float]:
    """The costs of a policy of the round and the state on these draws."""
    x, costs = 1.0, []
    for h, draw in enumerate(draws, 1):
        action = policy(h, x)
        costs.append(cost_of(x, action))
        x = after(x, action, draw)
    return costs


def make_plant(name: str, own_prior: bool = True) -> Plant:
    """The plant as the service knows it; every digit of its numbers counts."""
    certificate = LipschitzCertificate(CONTRACTS[name], Sensitivity(1.0, 0.75, geometric(0.25)))
    return Plant(certificate, prior if own_prior else None, low=-20.0, high=20.0, resolution=0.0)


@dataclass
class Entry:
    """What a client knows of one round."""

    observation: list[float]
    proposal: Any
    prior: float
    answer: Any = None
    played: float | None = None
    cost: float | None = None

    def act(self, sends_prior: bool) -> dict[str, Any]:
        """The arguments of `act`, but for whose it is."""
        sent = {"observation": self.observation, "proposal": self.proposal}
        return sent | ({"prior": self.prior} if sends_prior else {})

    def observe(self) -> dict[str, Any]:
        """The arguments of `observe`; what was played is always said."""
        return {"cost": self.cost, "applied": self.played}


class Played(NamedTuple):
    """The costs of an episode, a round each."""

    plant: str
    costs: list[float]
    prior: list[float]
    """Of the prior on the same draws."""
    unguarded: list[float]
    """Of the learner alone on the same draws."""


@dataclass
class Finding:
    """What came of one world."""

    seed: int
    crashes: int = 0
    power_losses: int = 0
    cut: int = 0
    """How often a torn end was cut off."""
    damaged: int = 0
    """How often a journal was found damaged, so that the service did not start."""
    refused: int = 0
    """How often the full disk kept an answer back."""
    alone: int = 0
    """Rounds in which a client played without an answer."""
    gaps: int = 0
    """Rounds that were answered with the backup because of a gap."""
    rounds: int = 0
    operations: int = 0
    episodes: list[Played] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """What must not happen and did, in words."""


class World:
    """One world.

    Args:
        seed: Determines everything.
    """

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.finding = Finding(seed)
        self.time, self._count = 0.0, itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        dice = self.dice
        self.disk = FakeDisk(dice)
        self.durability: Durability = dice.choice(("process", "power"))
        self.loss = dice.choice((0.0, 0.1, 0.4))
        self.crash_every = dice.choice((10, 40, 150))
        self.power_share = dice.choice((0.0, 0.5))
        self.flips = dice.random() < 0.15
        self.slow = 0.0
        self.calm = self.damaged = self.lossy = False
        self.service: Service | None = None
        self.answers: dict[tuple[Any, ...], str] = {}
        own = {name: dice.random() < 0.5 for name in dice.sample(sorted(CONTRACTS), dice.randint(1, 2))}
        self.plants = {name: make_plant(name, has) for name, has in own.items()}
        self.clients = [Client(self, name, not has) for name, has in own.items()]

    # Time.

    def at(self, delay: float, event: Callable[[], None]) -> None:
        """Let something happen later."""
        heapq.heappush(self._events, (self.time + delay, next(self._count), event))

    def run(self) -> Finding:
        """Play it to its end."""
        self.start()
        for client in self.clients:
            client.begin_round(1)
            self.at(0.3, client.pump)
        self.at(self.dice.uniform(0.0, 2.0), self.trouble)
        while self._events and self.time < ROUNDS + 60.0:
            self.time, _, event = heapq.heappop(self._events)
            if not self.calm and self.time > ROUNDS + 2.0:
                self.heal()
            event()
            if self.calm and (self.damaged or self.settled()):
                break
        self.check_accounts()
        self.finding.operations = self.disk.operations
        return self.finding

    def settled(self) -> bool:
        """Whether the service is there and has every report."""
        return self.service is not None and all(
            any(each["account"] > ROUNDS for each in plant["episodes"])
            for plant in self.service.status()["plants"].values()
        )

    def heal(self) -> None:
        """From here on nothing fails, so that every report arrives."""
        self.calm, self.loss, self.slow = True, 0.0, 0.0
        self.disk.space = self.disk.crash_in = None

    def trouble(self) -> None:
        """Something happens that is not asked for, and again after a while."""
        if self.calm:
            return
        kind = self.dice.choice(("kill", "full", "slow", "operator", "operator", "nothing"))
        if kind == "kill" and self.service is not None:
            self.crash()
        elif kind == "full":
            self.disk.space = self.dice.randint(0, 600)
            self.at(self.dice.uniform(0.2, 2.0), lambda: setattr(self.disk, "space", None))
        elif kind == "slow":
            self.slow = self.dice.uniform(0.2, 2.0)
            self.at(self.dice.uniform(0.2, 2.0), lambda: setattr(self, "slow", 0.0))
        elif kind == "operator":
            control = self.dice.choice(("prior_now", "resume"))
            self.deliver(control, {"plant": None, "who": "operator", "why": "drill"}, lambda _: None)
        self.at(self.dice.expovariate(1.0), self.trouble)

    def clock(self) -> float:
        """A clock that jumps."""
        return self.time + self.dice.choice((0.0, 0.0, -1e6, 1e9))

    # The service.

    def start(self) -> None:
        """Start the service; what it finds must be what was answered."""
        if self.service is not None or self.damaged:
            return
        if not self.calm and self.crash_every:
            self.disk.crash_in = 1 + int(self.dice.expovariate(1.0 / self.crash_every))
        try:
            small = self.dice.choice((2_000, 10**6))
            journal = Journal("j", self.durability, segment_bytes=small, keep=3, disk=self.disk)
            if journal.recovered.cut is not None:
                self.finding.cut += 1
            service = Service(self.plants, journal, clock=self.clock)
        except Crash:
            self.crash()
        except JournalDamaged as error:
            self.finding.damaged += 1
            self.damaged = True
            if not self.flips:
                self.finding.wrong.append(f"found damaged, but nothing was changed: {error}")
        except JournalFailed:  # the disk is full
            self.disk.die()
            self.at(0.5, self.start)
        except ValueError as error:
            self.damaged = True
            self.finding.wrong.append(f"did not start: {error}")
        else:
            self.service = service
            self.check_answers(service)

    def crash(self) -> None:
        """The service dies, or the machine stops; after a while it starts again."""
        self.finding.crashes += 1
        self.service = None
        if self.dice.random() < self.power_share:
            self.finding.power_losses += 1
            self.disk.lose_power()
            self.lossy = self.lossy or self.durability == "process"
        else:
            self.disk.die()
        if self.flips and self.dice.random() < 0.3 and self.disk.flip():
            self.lossy = True
        self.at(self.dice.uniform(0.05, 2.0), self.start)

    def check_answers(self, service: Service) -> None:
        """What was answered is known."""
        if self.lossy:
            return  # nobody promised it
        known = {
            (kind, plant, episode, number): text.dumps(reply)
            for plant, episode, kind, number, reply in service.remembered()
        }
        for key, answer in self.answers.items():
            if known.get(key) != answer:
                self.finding.wrong.append(
                    f"after a crash {key} was {known.get(key)}, but {answer} was answered"
                )

    def deliver(self, kind: str, arguments: dict[str, Any], back: Callable[[Any], None]) -> None:
        """A request arrives, and its reply goes back."""
        if self.service is None:
            return
        reply: Any
        try:
            reply = getattr(self.service, kind)(**arguments)
        except Crash:
            self.crash()
            return
        except ServiceError as error:
            self.finding.refused += type(error).__name__ == "Unavailable"
            reply = error
        else:
            self.check_repeated(kind, arguments, reply)
        self.send(lambda: back(reply), self.slow)

    def check_repeated(self, kind: str, arguments: dict[str, Any], reply: Reply) -> None:
        """The same request, the same answer."""
        if "episode" not in arguments:
            return
        key = (kind, arguments["plant"], arguments["episode"], arguments.get("round", 0))
        answer = text.dumps(list(reply))
        before = self.answers.setdefault(key, answer)
        if before != answer and not self.lossy:
            self.finding.wrong.append(f"{key} was answered {before}, and when it was repeated {answer}")

    # The network.

    def send(self, event: Callable[[], None], delay: float = 0.0) -> None:
        """Let something arrive: perhaps never, perhaps twice, and after what was sent later."""
        for _ in range(1 + (self.dice.random() < self.loss / 2.0)):
            if self.dice.random() >= self.loss:
                self.at(delay + self.dice.expovariate(20.0), event)

    def request(self, kind: str, arguments: dict[str, Any], back: Callable[[Any], None]) -> None:
        """Send a request."""
        self.send(lambda: self.deliver(kind, arguments, back))

    # What must be so in the end.

    def check_accounts(self) -> None:
        """The account is that of an undisturbed run, if everything could be reported."""
        for client in self.clients:
            client.judge(self.finding)
        if self.damaged:
            return
        if self.service is None or not self.settled():
            self.finding.wrong.append("a report did not get into the account although nothing fails any more")
            return
        for client in self.clients:
            undisturbed = Service(self.plants)
            client.play_again(undisturbed)
            mine, its = (each.account(client.plant, client.episode) for each in (self.service, undisturbed))
            if text.dumps(mine) != text.dumps(its):
                self.finding.wrong.append(f"the account is {mine}, undisturbed it is {its}")


class Client:
    """A control loop: what a program at the plant must do, and no more."""

    def __init__(self, world: World, plant: str, sends_prior: bool) -> None:
        self.world, self.plant, self.sends_prior = world, plant, sends_prior
        self.episode = "day"
        self.draws = [world.dice.uniform(0.5, 1.5) for _ in range(ROUNDS)]
        self.style = world.dice.choice(("greedy", "greedy", "mixed", "strike"))
        self.x, self.round = 1.0, 0
        self.entries: dict[int, Entry] = {}
        self.opened = False
        self.account = 1

    @property
    def done(self) -> bool:
        """Whether every round is in the account."""
        return self.account > ROUNDS

    def proposal(self, h: int, x: float) -> Any:
        """What the learner wants: as much as it can get, or rubbish."""
        if self.style == "strike" and h < ROUNDS // 2:
            return prior([x])
        if self.style == "mixed" and self.world.dice.random() < 0.3:
            return self.world.dice.choice((math.nan, None, "rubbish", [1.0, 2.0], prior([x]), -5.0))
        return prior([x]) + 5.0

    # The loop.

    def begin_round(self, h: int) -> None:
        """See, ask, and act when the time has come."""
        self.round = h
        observation = [self.x]
        self.entries[h] = Entry(observation, self.proposal(h, self.x), prior(observation))
        for delay in (0.0, 0.15, 0.3):
            self.world.at(delay, lambda: self.ask(h))
        self.world.at(DEADLINE, lambda: self.play(h))

    def ask(self, h: int) -> None:
        """Send `act`, again if there is no answer."""
        entry = self.entries[h]
        if not self.opened:
            self.call("reset", {})
        if entry.answer is None:
            self.call("act", {"round": h, **entry.act(self.sends_prior)})

    def play(self, h: int) -> None:
        """Play the answer, or the backup if there is none."""
        entry = self.entries[h]
        action = entry.prior if entry.answer is None else entry.answer.action
        self.world.finding.rounds += 1
        self.world.finding.alone += entry.answer is None
        self.world.finding.gaps += entry.answer is not None and entry.answer.reason == "gap"
        entry.played, entry.cost = action, cost_of(self.x, action)
        self.x = after(self.x, action, self.draws[h - 1])
        if h < ROUNDS:
            self.world.at(1.0 - DEADLINE, lambda: self.begin_round(h + 1))

    def pump(self) -> None:
        """Report what the account does not hold, in order, again and again."""
        if not self.opened:
            self.call("reset", {})
        first = min(self.account, ROUNDS)  # the last one again and again: the service may have lost it
        for h in range(first, first + 3):
            entry = self.entries.get(h)
            if entry is not None and entry.cost is not None:
                if entry.answer is None or self.world.dice.random() < 0.3:
                    self.call("act", {"round": h, **entry.act(self.sends_prior)})
                self.call("observe", {"round": h, **entry.observe()})
        self.world.at(0.3, self.pump)

    def call(self, kind: str, arguments: dict[str, Any]) -> None:
        """Send a request of this episode."""
        sent = {"plant": self.plant, "episode": self.episode, **arguments}
        self.world.request(kind, sent, lambda reply: self.hear(kind, sent.get("round", 0), reply))

    def hear(self, kind: str, number: int, reply: Any) -> None:
        """A reply has arrived, perhaps an old one."""
        if isinstance(reply, Conflict):
            self.world.finding.wrong.append(f"a request that never changed is in conflict: {reply}")
        elif isinstance(reply, Unknown):
            self.opened = self.opened and "no episode" not in str(reply)
            if kind == "observe" and number in self.entries:
                entry = self.entries[number]  # the service has forgotten the round, or never heard of it
                self.call("act", {"round": number, **entry.act(self.sends_prior)})
        elif isinstance(reply, Refused):
            self.world.finding.wrong.append(f"refused: {reply}")
        elif not isinstance(reply, ServiceError):
            self.opened = True
            self.account = reply.account
            if kind == "act" and number == self.round and self.entries[number].played is None:
                self.entries[number].answer = reply

    # What came of it.

    def judge(self, finding: Finding) -> None:
        """The costs, those of the prior and those of the learner alone on the same draws."""
        costs = [float(self.entries[h].cost or 0.0) for h in range(1, ROUNDS + 1)]
        of_prior = replayed(self.draws, lambda _, x: prior([x]))
        finding.episodes.append(Played(self.plant, costs, of_prior, replayed(self.draws, self._alone)))

    def _alone(self, h: int, x: float) -> float:
        wish = self.proposal(h, x)
        return wish if isinstance(wish, float) and math.isfinite(wish) else prior([x])

    def play_again(self, service: Service) -> None:
        """The same rounds, one after the other."""
        service.reset(self.plant, self.episode)
        for h in range(1, ROUNDS + 1):
            entry = self.entries[h]
            service.act(self.plant, self.episode, h, **entry.act(self.sends_prior))
            service.observe(self.plant, self.episode, h, **entry.observe())
