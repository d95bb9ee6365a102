"""A structured certificate on a system so plain that everything can be worked out by hand."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from tether import Contract
from tether.certificates import Bounds, Box, Outcome, Structure, Structured
from tether.certificates.share import either, least_excess, on_the_way
from tether.certificates.structured import Opened, StructuredState, Taken
from tether.core.ops import FLOAT32, FLOAT64, FLOATS, NUMPY

CONTRACT = Contract(lam=2.0, b=3.0, horizon=5, cost_floor=1.0)
LIMIT = FLOATS.limit(0.0)
BOX = Box(-20.0, 20.0, "l2")


@dataclasses.dataclass(frozen=True)
class Plain(Structure):
    """An action costs its distance from the prior's in this round and `carried` times that in the next."""

    kind = "plain"
    backups = ("rest",)

    carried: float = 0.5
    largest: float = 10.0

    @property
    def low(self):
        return -self.largest

    @property
    def high(self):
        return self.largest

    @property
    def scale(self):
        return 7.0

    def start(self, zero):
        return zero, zero

    def read(self, observation):
        return (observation[0],)

    def admits(self, seen, ops):
        return ops.logical_and(seen[0] >= 0.0, seen[0] <= 4.0)

    def agrees(self, seen, prior, epsilon, ops):
        return abs(prior - seen[0]) <= 64.0 * epsilon

    def gaps_between(self, seen, prior_seen, ops):
        return seen[0] - prior_seen[0], prior_seen[0] - seen[0]

    def backup(self, plan, now, ops):
        assert plan == 1
        return 0.0 * now.prior - 1.0

    def bounds(self, now, action, plan, ops):
        size = abs(action - now.prior)
        # Resting afterwards costs more now and nothing later.
        first = size + 2.0 * plan - 2.0
        totals = (first, first + self.carried * size - 2.0) if plan == 0 else (first,)
        return Bounds(totals, 1.0 + size, (size, now.gaps[0]))

    def close(self, step, cost, epsilon, ops):
        return 1.0 + 0.25 * step[0], (step[0], step[1] + 1.0)

    def unseen(self, step, ops):
        return step[0] + 0.5, step[1] + 2.0

    def gaps_from_features(self, above, below):
        return above, below


def certificate(contract=CONTRACT, system=None, **options):
    return Structured(contract, system or Plain(), **options)


def state(**changes):
    return StructuredState(2.0, 1.0, (0.5, 0.25), 30.0, 0.0, False)._replace(**changes)


def unit_of(epsilon, horizon=5):
    return max(4.0 * epsilon * (horizon + 16.0), math.sqrt(epsilon) / 16.0)


@pytest.mark.parametrize("epsilon", [FLOAT64, FLOAT32, 1e-4, 0.01])
def test_the_slack_of_a_round_keeps_the_documented_reserve(epsilon):
    """The unit of round-off is sqrt(epsilon)/16, or 4 epsilon (H + 16) if that is more."""
    unit = unit_of(epsilon)
    expected = 2.0 * 3.0 * (1.0 - unit) - 1.0 - unit * 30.0
    for made, given in ((certificate(), epsilon), (certificate(resolution=epsilon), 0.0)):
        opened = made.open(state(), [2.0], FLOATS, given)
        assert opened.slack == pytest.approx(expected, rel=1e-13)
        assert opened == Opened(
            (2.0,), (0.5, 0.25), opened.slack, 3.0, 3.0, 0.0, False, epsilon, opened.rounds
        )
        assert made.features(opened, FLOATS) == (opened.slack + 5.0, 0.5, 0.25, 3.0)
    coarse = certificate().open(state(), [np.float32(2.0)], FLOATS)
    assert coarse.epsilon == FLOAT32
    assert type(coarse.seen[0]) is float


def test_what_is_seen_must_be_covered_up_to_round_off():
    made = certificate()
    for seen, epsilon, breached in (
        (4.0, 0.0, False),
        (4.0 * (1.0 + 1e-5), 0.0, True),
        (4.0 * (1.0 + 1e-5), 1.1e-5, False),
        (4.0 * (1.0 + 1e-5), 0.9e-5, True),
        (-1e-9, 0.01, True),
        (math.nan, 0.0, True),
    ):
        assert made.open(state(), [seen], FLOATS, epsilon).breached is breached, seen
    assert made.open(state(breached=True), [2.0], FLOATS).breached is True


def test_before_the_first_round_nothing_is_spent():
    assert certificate().start(FLOATS) == StructuredState(0.0, 0.0, (0.0, 0.0), 12.0, 0.0, False)
    assert certificate().start() == certificate().start(FLOATS)
    assert certificate().backup_names == ("prior", "rest")
    assert certificate().revealed_names == ()
    assert certificate().feature_units() == (5.0, 1.0, 1.0, 1.0)
    assert certificate(Contract(0.0, 0.0, 5, 1.0)).feature_units() == (1.0, 1.0, 1.0, 1.0)
    assert certificate(Contract(0.0, 0.5, 5, 1.0)).feature_units() == (0.5, 1.0, 1.0, 1.0)


def test_a_plan_goes_on_where_the_features_say():
    made = certificate()
    assert made.resume((0.0, 0.5, 0.25, 5.0)) == StructuredState(0.0, 5.0, (0.5, 0.25), 0.0, 0.0, False)
    resumed = made.resume((4.0, 0.5, 0.25, 3.0))
    assert resumed == StructuredState(2.0, 2.0 * 3.0 + 5.0 - 4.0, (0.5, 0.25), 0.0, 0.0, False)
    # The slack of its coming round is what it was, but for the reserve.
    assert made.features(made.open(resumed, [2.0], FLOATS), FLOATS)[0] == pytest.approx(4.0, abs=1e-6)


@pytest.mark.parametrize("epsilon", [FLOAT64, 1e-6])
@pytest.mark.parametrize("plan", [0, 1])
def test_an_action_is_safe_iff_every_total_leaves_the_reserve(plan, epsilon):
    unit = unit_of(epsilon)
    system = Plain() if plan == 0 else dataclasses.replace(Plain(), carried=100.0)
    made = certificate(system=system)
    opened = made.open(state(), [2.0], FLOATS, epsilon)
    b = 3.0 * (1.0 - unit)

    def reserve(total, n, size):
        return opened.slack - unit * (1.0 + size) - total - unit * abs(total) + (n + 1) * b

    for size in (0.0, 1.0, 4.0, 6.5, 12.0):
        prior_way = min(reserve(size - 2.0, 0, size), reserve(size * (1.0 + system.carried) - 4.0, 1, size))
        expected = max(prior_way, reserve(size, 0, size))
        assert made.weigh(opened, 2.0, 2.0 + size, BOX, FLOATS)[0] == pytest.approx(expected, rel=1e-12)
    # In the last round only that round counts.
    last = opened._replace(remaining=1.0)
    expected = max(reserve(6.5 - 2.0, 0, 6.5), reserve(6.5, 0, 6.5))
    for each in (made, certificate(system=dataclasses.replace(Plain(), carried=1e3))):
        assert each.weigh(last, 2.0, 8.5, BOX, FLOATS)[0] == pytest.approx(expected, rel=1e-12)


def test_the_choice_is_the_farthest_safe_action_on_the_way_and_says_what_is_left():
    made = certificate()
    opened = made.open(state(), [2.0], FLOATS)
    # Slack 5: as backup the prior allows size - 2 <= 8 and 1.5 size - 4 <= 11; resting allows size <= 8.
    choice = made.choose(opened._replace(slack=5.0), 12.0, 2.0, BOX, FLOATS)
    assert choice.action == 10.0  # the system's own bound
    assert choice.deviation == choice.radius == 8.0
    assert choice.margin == pytest.approx(5.0 + 3.0 - 6.0)
    assert (choice.backup, choice.breached) == (0.0, False)
    assert choice.taken == Taken(6.0, 9.0, (8.0, 0.5), 0.0, False, FLOAT64, (2.0,), 2.0, False)
    short = made.choose(opened._replace(slack=1.0), 12.0, 2.0, BOX, FLOATS)
    assert short.action == pytest.approx(2.0 + 6.0, rel=1e-4)  # size - 2 <= 4, 1.5 size - 4 <= 7
    assert short.action <= 8.0
    assert short.margin == pytest.approx(1.0 + 3.0 - (short.deviation - 2.0), rel=1e-9)
    near = made.choose(opened._replace(slack=1.0), 8.1, 2.0, BOX, FLOATS)
    assert near.action == pytest.approx(2.0 + 6.0, rel=1e-4)  # 6 of 6.1
    boxed = made.choose(opened._replace(slack=5.0), 12.0, 2.0, Box(0.0, 5.0, "l2"), FLOATS)
    assert boxed.action == 5.0
    down = made.choose(opened._replace(slack=5.0), -12.0, 2.0, Box(-1.0, 5.0, "l2"), FLOATS)
    assert down.action == -1.0


@pytest.mark.parametrize("proposal", [math.nan, math.inf, -math.inf])
def test_a_proposal_that_is_not_finite_is_not_followed(proposal):
    made = certificate()
    opened = made.open(state(), [2.0], FLOATS)
    assert made.choose(opened, proposal, 2.0, BOX, FLOATS).action == 2.0


def test_in_a_breached_episode_and_with_another_prior_only_the_prior_is_played():
    made = certificate()
    opened = made.open(state(), [2.0], FLOATS)
    for each, prior in ((opened._replace(breached=True), 2.0), (opened, 2.0 + 1e-6)):
        choice = made.choose(each, 5.0, prior, BOX, FLOATS)
        assert choice.action == prior
        assert choice.breached is True
        assert choice.taken.breached is True
    assert made.choose(opened, 5.0, 2.0, BOX, FLOATS).breached is False


def test_the_carried_backup_is_where_the_search_begins_if_the_prior_is_not_safe():
    made = certificate()
    opened = made.open(state(), [2.0], FLOATS)
    broke = opened._replace(slack=-20.0)
    assert made.choose(broke, 2.0, 2.0, BOX, FLOATS).action == 2.0  # the prior is carried
    resting = broke._replace(backup=1.0)
    choice = made.choose(resting, 2.0, 2.0, BOX, FLOATS)
    assert choice.action == -1.0
    assert (choice.backup, choice.breached) == (1.0, False)
    assert made.choose(opened._replace(backup=1.0, slack=5.0), 2.0, 2.0, BOX, FLOATS).action == 2.0
    assert made.backup_action(resting, 2.0, BOX, FLOATS) == -1.0
    assert made.backup_action(broke, 2.0, BOX, FLOATS) == 2.0


def test_the_first_backup_for_which_the_action_is_safe_is_carried():
    steep = certificate(system=dataclasses.replace(Plain(), carried=100.0))
    opened = steep.open(state(), [2.0], FLOATS)._replace(slack=5.0)
    # The prior afterwards allows 101 size - 4 <= 11, resting size <= 8.
    near, far = (steep.choose(opened, 2.0 + size, 2.0, BOX, FLOATS) for size in (0.1, 3.0))
    assert (near.action, near.backup, near.taken.backup) == (2.1, 0.0, 0.0)
    assert (far.action, far.backup, far.taken.backup) == (5.0, 1.0, 1.0)


def test_what_a_plan_takes_is_what_playing_it_would_take():
    made = certificate()
    opened = made.open(state(backup=1.0), [2.0], FLOATS)
    weighed = made.weigh(opened, 2.0, 5.0, BOX, FLOATS)[1]
    assert weighed == Taken(1.0, 4.0, (3.0, 0.5), 1.0, False, FLOAT64, (2.0,), 2.0, False)


def taken(**changes):
    return Taken(4.0, 6.0, (2.0, 0.5), 1.0, False, FLOAT64, (2.0,), 2.0)._replace(**changes)


def test_a_round_is_accounted_for_as_documented():
    made = certificate()
    closed = made.update(state(), taken(), Outcome(5.0), FLOATS)
    seen = 5.0 - 3.0 * 1.5  # the structure's floor is 1 + size / 4
    assert closed == StructuredState(3.0, 1.0 + seen, (2.0, 1.5), 30.0 + 4.0 * 5.0 + 5.0 + 4.0, 1.0, False)
    assert (
        made.update(state(), taken(now=0.25), Outcome(5.0), FLOATS).account == 1.25
    )  # what was feared is less
    assert made.update(state(), taken(now=-4.0), Outcome(5.0), FLOATS).magnitude == 59.0
    assert made.update(state(account=8.9), taken(), Outcome(5.0), FLOATS).account == 9.0  # 3 b
    known = made.close(state(), taken(), Outcome(5.0), 2.0, FLOATS)
    assert known.account == 1.0 + 5.0 - 3.0 * 2.0
    flat = made.update(state(), taken(step=(-4.0, 0.5)), Outcome(5.0), FLOATS)
    assert flat.account == 1.0 + 5.0 - 3.0 * 1.0  # never below the contract's floor


def test_what_was_applied_is_accounted_for_as_if_it_had_been_decided():
    made = certificate()
    before = state(account=-2.0)
    opened = made.open(before, [2.0], FLOATS)  # slack 8
    for action in (2.5, 5.0, -7.5):
        choice = made.choose(opened, action, 2.0, BOX, FLOATS)
        assert choice.action == action
        decided = made.update(before, choice.taken, Outcome(1.2), FLOATS)
        applied = made.update(
            before,
            made.choose(opened, 2.0, 2.0, BOX, FLOATS).taken,
            Outcome(1.2, applied=action, box=BOX),
            FLOATS,
        )
        assert applied == decided
        assert applied.overridden is False


def test_what_was_applied_and_is_not_safe_is_an_override_and_the_account_may_exceed_the_promise():
    made = certificate()
    before = state(account=4.0, backup=1.0)  # slack 2: with the prior afterwards 1.5 size - 4 <= 8
    outcome = Outcome(9.0, applied=10.0, box=BOX)  # size 8
    closed = made.update(before, taken(), outcome, FLOATS)
    assert (closed.overridden, closed.breached, closed.backup) == (True, False, 0.0)
    assert closed.gaps == (8.0, 1.5)
    assert closed.account == 4.0 + 9.0 - 3.0 * 3.0  # the floor is 1 + size / 4
    assert closed.clipped == 0.0
    high = made.update(before._replace(account=8.0), taken(), outcome._replace(cost=1.0 + 8.0), FLOATS)
    assert high.account == 8.0  # c - 3 floor = 0
    dear = made.update(before._replace(account=13.0), taken(), outcome, FLOATS)
    assert dear.account == 13.0 > 3.0 * 3.0
    kept = made.update(before._replace(account=13.0), taken(), Outcome(5.0), FLOATS)
    assert (kept.account, kept.clipped) == (9.0, 4.5)  # 13 + 5 - 3 (1 + 2/4) = 13.5


def test_after_an_override_the_prior_plays_until_what_is_played_is_known_to_be_safe():
    made = certificate()
    # (**) of the prior's action: -2 <= slack + 3 and -4 <= slack + 6.
    for account, held in ((10.9, True), (11.2, False)):
        before = state(account=account, overridden=True)
        choice = made.choose(made.open(before, [2.0], FLOATS), 9.0, 2.0, BOX, FLOATS)
        assert choice.overridden is choice.taken.overridden is (not held)
        assert choice.breached is False
        closed = made.update(before, choice.taken, Outcome(1.0), FLOATS)
        assert closed.overridden is (not held)
        assert (choice.action == 2.0) is (not held)
        assert held or closed.account == account - 2.0 > 9.0
        assert not held or closed.account <= 9.0
        # Applied by somebody else it is the same.
        same = made.update(before, choice.taken, Outcome(1.0, applied=2.0, box=BOX), FLOATS)
        assert same.overridden is (not held)


@pytest.mark.parametrize(
    ("applied", "covered"), [(10.0, True), (10.1, False), (-10.1, False), (math.nan, False)]
)
def test_what_was_applied_outside_the_range_of_the_bounds_is_a_breach(applied, covered):
    made = certificate()
    closed = made.update(state(account=-9.0), taken(), Outcome(5.0, applied=applied, box=BOX), FLOATS)
    assert closed.breached is (not covered)


def test_a_round_without_its_cost_counts_as_what_was_feared_until_the_cost_comes():
    made = certificate()
    in_time = made.update(state(), taken(), Outcome(5.0), FLOATS)
    late, owed = made.defer(state(), taken(), Outcome(math.nan), FLOATS)
    assert late == StructuredState(3.0, 5.0, (2.5, 2.5), 30.0 + 5.0 + 4.0, 1.0, False)
    assert owed == (4.0, 6.0, (2.0, 0.5), FLOAT64, 0.0, 2.0)
    assert made.restored_owed(json.loads(json.dumps(owed))) == owed
    settled = made.settle(late, owed, Outcome(5.0), FLOATS)
    assert settled == late._replace(account=in_time.account, magnitude=39.0 + 4.0 * 5.0 + 4.0)
    # A cost that is as bad as was feared, or worse than the bound says, takes nothing back.
    assert made.settle(late, owed._replace(now=0.25), Outcome(5.0), FLOATS).account == 5.0
    assert made.settle(late, owed._replace(step=(-4.0, 0.5)), Outcome(5.0), FLOATS).account == 1.0 + 5.0 - 3.0
    for cost, ceiling, breached in (
        (6.0, 6.0, False),
        (6.1, 6.0, True),
        (0.9, 6.0, True),
        (LIMIT, math.inf, True),
    ):
        closed = made.settle(late, owed._replace(ceiling=ceiling), Outcome(cost), FLOATS)
        assert closed.breached is breached
    assert made.settle(late._replace(breached=True), owed, Outcome(5.0), FLOATS).breached is True
    coarse = Outcome(6.0 + 6.9 * 100.0 * unit_of(0.01), epsilon=0.01)
    assert made.settle(late, owed, coarse, FLOATS).breached is False
    assert (
        made.settle(late, owed._replace(epsilon=0.01), coarse._replace(epsilon=0.0), FLOATS).breached is False
    )
    applied, lent = made.defer(state(account=4.0), taken(), Outcome(math.nan, applied=10.0, box=BOX), FLOATS)
    assert (applied.overridden, applied.account, lent.step) == (True, 4.0 + 8.0 - 2.0, (8.0, 0.5))
    for wrong in ([4.0, 6.0, [2.0, 0.5], FLOAT64, 0.0], [math.nan, 6.0, [2.0, 0.5], FLOAT64, 0.0, 2.0]):
        with pytest.raises(ValueError, match="owed must be"):
            made.restored_owed(wrong)


def test_what_the_promise_cut_off_the_account_is_not_taken_back_again():
    made = certificate()
    late, owed = made.defer(state(account=8.0), taken(), Outcome(math.nan), FLOATS)
    assert (late.account, late.clipped) == (9.0, 3.0)  # 8 + 4 is cut to 3 b
    # The round turns out to have cost 3.5 less than was feared, of which 3 are gone already.
    assert made.settle(late, owed, Outcome(5.0), FLOATS).account == pytest.approx(8.5)
    # A cut before the round is not the round's.
    before = state(account=5.0, clipped=3.0)
    again, owed = made.defer(before, taken(), Outcome(math.nan), FLOATS)
    assert (again.account, again.clipped, owed.clipped) == (9.0, 3.0, 3.0)
    assert made.settle(again, owed, Outcome(5.0), FLOATS).account == pytest.approx(5.5)


def test_a_structure_that_cannot_do_without_costs_says_so():
    class Blind(Plain):
        unseen = Structure.unseen

    with pytest.raises(NotImplementedError, match="Blind has no bounds for a round whose cost is missing"):
        certificate(system=Blind()).defer(state(), taken(), Outcome(math.nan), FLOATS)


def test_costs_that_cannot_be_are_a_breach():
    made = certificate()
    wide, small = 100.0 * unit_of(0.01), unit_of(1e-6)
    for changes, outcome, breached in (
        ({}, Outcome(5.0), False),
        ({}, Outcome(6.0), False),
        ({}, Outcome(6.1), True),
        ({"epsilon": 1e-6}, Outcome(6.0 + 6.99 * 100.0 * unit_of(1e-6)), False),
        ({"epsilon": 1e-6}, Outcome(6.0 * (1.0 + 100.0 * small) + 100.0 * small), False),  # exactly there
        ({"epsilon": 1e-6}, Outcome(6.0 + 7.01 * 100.0 * unit_of(1e-6)), True),
        ({}, Outcome(6.0 + 6.9 * wide, epsilon=0.01), False),
        ({}, Outcome(6.0 + 7.1 * wide, epsilon=0.01), True),
        ({}, Outcome(0.9), True),
        ({}, Outcome(math.nan), True),
        ({"ceiling": math.inf}, Outcome(LIMIT), True),  # the sum of magnitudes is beyond it
        ({"ceiling": math.inf}, Outcome(LIMIT / 8.0), False),
        ({"breached": True}, Outcome(5.0), True),
        ({"now": math.nan}, Outcome(5.0), True),
    ):
        closed = made.update(state(), taken(**changes), outcome, FLOATS)
        assert closed.breached is breached, (changes, outcome)
    assert made.update(state(breached=True), taken(), Outcome(5.0), FLOATS).breached is True
    with pytest.raises(ValueError, match=r"needs Outcome\.box"):
        made.update(state(), taken(), Outcome(5.0, applied=1.0), FLOATS)
    assert made.update(state(magnitude=LIMIT), taken(), Outcome(5.0), FLOATS).breached is False
    # A cost that is not accepted is counted as the floor.
    assert made.update(state(), taken(), Outcome(7.0), FLOATS).magnitude == 30.0 + 4.0 + 5.0 + 4.0


def test_many_episodes_at_once_are_decided_like_each_alone():
    made = certificate(system=dataclasses.replace(Plain(), carried=5.0))
    slack = np.array([-20.0, -1.0, 0.5, 5.0, 5.0])
    backup = np.array([1.0, 0.0, 1.0, 0.0, 1.0])
    proposal = np.array([5.0, 9.0, -9.0, math.nan, 3.0])
    zero = np.zeros(5)
    one = made.open(state(), [2.0], FLOATS)
    many = one._replace(slack=slack, backup=backup, breached=zero > 0.0, gaps=(zero, zero))
    together = made.choose(many, proposal, zero + 2.0, BOX, NUMPY)
    for i in range(5):
        opened = one._replace(slack=float(slack[i]), backup=float(backup[i]), gaps=(0.0, 0.0))
        alone = made.choose(opened, float(proposal[i]), 2.0, BOX, FLOATS)
        assert together.action[i] == alone.action
        assert together.margin[i] == alone.margin
        assert together.backup[i] == alone.backup


def test_a_far_proposal_is_searched_up_to_ten_thousand_times_the_starts_size():
    made = certificate(system=dataclasses.replace(Plain(), largest=math.inf, carried=0.0))
    opened = made.open(state(), [2.0], FLOATS)._replace(slack=1e9)
    box = Box(-math.inf, math.inf, "l2")
    found = made.choose(opened, 1e60, 2.0, box, FLOATS)
    assert 0.96 * 3e4 < found.action - 2.0 <= 3e4
    assert 0.96 * 3e4 < 2.0 - made.choose(opened, -1e60, 2.0, box, FLOATS).action <= 3e4
    assert made.choose(opened, 2.9e4, 2.0, box, FLOATS).action == 2.9e4
    tight = opened._replace(slack=np.full(2, 1e9), backup=np.zeros(2), breached=np.zeros(2, bool))
    many = made.choose(tight, np.array([1e60, 2.5]), np.full(2, 2.0), box, NUMPY)
    assert 0.96 * 3e4 < many.action[0] - 2.0 <= 3e4
    assert many.action[1] == 2.5


@dataclasses.dataclass(frozen=True)
class Pair(Plain):
    """The same for two numbers, the larger of whose distances counts."""

    kind = "pair"
    entries = 2

    def agrees(self, seen, prior, epsilon, ops):
        return True

    def backup(self, plan, now, ops):
        return [-1.0, -2.0]

    def bounds(self, now, action, plan, ops):
        assert isinstance(action, list)
        size = ops.largest([abs(each - prior) for each, prior in zip(action, now.prior, strict=True)])
        return super().bounds(now._replace(prior=0.0), size, plan, ops)


def test_a_vector_goes_the_same_share_of_the_way_in_every_entry():
    made = certificate(system=Pair())
    opened = made.open(state(), [2.0], FLOATS)._replace(slack=1.0)
    prior, wish = np.array([1.0, 2.0]), np.array([9.0, -2.0])
    choice = made.choose(opened, wish, prior, Box(-20.0, 20.0, "l1"), NUMPY)
    share = (choice.action - prior) / (wish - prior)
    assert share[0] == pytest.approx(share[1]) == pytest.approx(0.75, rel=1e-4)  # 6 of 8
    assert choice.deviation == pytest.approx(0.75 * 12.0, rel=1e-4)
    assert isinstance(choice.action, np.ndarray)
    half = made.choose(opened, np.array([math.nan, 2.0]), prior, Box(-20.0, 20.0, "l1"), NUMPY)
    np.testing.assert_array_equal(half.action, prior)
    np.testing.assert_array_equal(made.backup_action(opened, prior, BOX, NUMPY), prior)
    resting = opened._replace(backup=1.0)
    np.testing.assert_array_equal(made.backup_action(resting, prior, BOX, NUMPY), [-1.0, -2.0])
    assert isinstance(made.backup_action(resting, prior, BOX, NUMPY), np.ndarray)
    free = certificate(system=Pair(largest=math.inf, carried=0.0))
    far = free.choose(
        opened._replace(slack=1e9), np.array([1e60, -3.0]), prior, Box(-math.inf, math.inf, "l1"), NUMPY
    )
    assert 0.96 * 3e4 < far.action[0] - 1.0 <= 3e4  # the start's largest entry is 2
    below = free.choose(
        opened._replace(slack=1e9),
        np.array([-1e60, 5.0]),
        -3.0 * prior,
        Box(-math.inf, math.inf, "l1"),
        NUMPY,
    )
    assert 0.96 * 7e4 < -3.0 - below.action[0] <= 7e4  # the start's largest entry is 6, on either side
    stop = free.choose(opened._replace(breached=True), wish, prior, BOX, NUMPY)
    np.testing.assert_array_equal(stop.action, prior)


def test_a_state_is_restored_if_and_only_if_an_episode_could_have_led_there():
    made = certificate()
    good = {**state()._asdict(), "gaps": [0.5, 0.25]}
    least = 5.0 + 7.0
    cases = [
        ({}, True),
        ({"account": 6.0}, True),
        ({"account": 6.1}, False),
        ({"account": -1e3}, True),
        ({"account": math.nan}, False),
        ({"rounds": 5.0}, True),
        ({"rounds": 6.0}, False),
        ({"magnitude": least}, True),
        ({"magnitude": 0.999 * least}, False),
        ({"backup": 1.0}, True),
        ({"backup": 2.0}, False),
        ({"breached": 0}, False),
        ({"gaps": [0.5]}, False),
        ({"gaps": [0.5, math.inf]}, False),
        ({"gaps": [0.5, [0.25]]}, False),
        ({"account": 6.1, "overridden": True}, True),  # the promise is not known to be kept
        ({"overridden": 1}, False),
        ({"clipped": -0.1}, False),
    ]
    for changes, possible in cases:
        given = json.loads(json.dumps({**good, **changes}))
        if possible:
            expected = StructuredState(**{**given, "gaps": tuple(given["gaps"])})
            assert made.restore(given, None) == (expected, None)
        else:
            with pytest.raises(ValueError, match="must be"):
                made.restore(given, None)
    opened = [4.0, 6.0, [2.0, 0.5], 1.0, False, FLOAT64, [2.0], 2.0, False]
    assert made.restore(good, opened)[1] == taken()
    for place, wrong in (
        *((0, math.nan), (1, math.inf), (3, 2.0), (3, 0.5), (4, 1), (5, math.nan), (0, [1.0])),
        *((6, [math.nan]), (7, math.inf), (7, [[2.0]]), (8, 0)),
    ):
        with pytest.raises(ValueError, match="must be"):
            made.restore(good, [*opened[:place], wrong, *opened[place + 1 :]])
    with pytest.raises(ValueError, match="taken must be a list of 9"):
        made.restore(good, opened[:8])
    array = made.restore(good, [4.0, 6.0, [[2.0, 0.5]], *opened[3:]])[1].step[0]
    np.testing.assert_array_equal(array, np.array([2.0, 0.5]))


@pytest.mark.parametrize(
    ("account", "backup", "expected"),
    [
        (1.0, 1.0, 2.0),  # the prior is safe
        (10.9, 1.0, 2.0),  # just so: -2 <= 6 - 10.9 + 3
        (11.2, 1.0, -1.0),  # no longer: the carried backup rests
        (11.2, 0.0, 2.0),  # the prior is what is carried
    ],
)
def test_what_is_no_proposal_leads_to_the_prior_if_it_is_safe_or_carried_and_else_to_the_backup(
    account, backup, expected
):
    made = certificate()
    opened = made.open(state(account=account, backup=backup), [2.0], FLOATS)
    for proposal in (math.nan, math.inf):
        choice = made.choose(opened, proposal, 2.0, BOX, FLOATS)
        assert (choice.action, choice.breached) == (expected, False)
    assert choice.backup == (backup if account > 11.0 else 0.0)
    assert made.backup_action(opened, 2.0, BOX, FLOATS) == (-1.0 if backup else 2.0)
    lost = made.choose(opened._replace(breached=True), 3.0, 2.0, BOX, FLOATS)
    assert (lost.action, lost.breached, lost.deviation) == (2.0, True, 0.0)


def test_an_action_that_was_moved_but_is_not_safe_is_a_breach():
    made = certificate()
    opened = made.open(state(), [2.0], FLOATS)
    now, plans = made._round(opened, 2.0, BOX, FLOATS), (0, 1)
    for action, share, breached in (
        (3.0, 0.5, False),
        (12.5, 0.5, True),  # size - 2 <= 8 fails by a half
        (19.0, 0.5, True),
        (19.0, 0.0, False),
        (3.0, 0.0, False),
    ):
        taken, _ = made._take(opened, now, action, share, plans, False, FLOATS)
        assert taken.breached is breached


def test_a_certificate_is_made_of_a_contract_a_structure_and_a_resolution():
    for contract, system, options, named in (
        ("2, 3", Plain(), {}, "contract must be"),
        (CONTRACT, "plain", {}, "system must be"),
    ):
        with pytest.raises(TypeError, match=named):
            Structured(contract, system, **options)
    with pytest.raises(ValueError, match="resolution must be at least 0"):
        Structured(CONTRACT, Plain(), resolution=-1e-9)
    plain = Structured(CONTRACT, Plain())
    assert (plain.online_ops, plain.resolution) == (FLOATS, 0.0)
    with pytest.raises(TypeError, match="positional"):
        Structured(CONTRACT, Plain(), 0.1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plain.resolution = 0.1
    assert json.loads(json.dumps(plain.to_dict())) == {
        "kind": "structured",
        "contract": {"lam": 2.0, "b": 3.0, "horizon": 5, "cost_floor": 1.0},
        "system": {"kind": "plain", "carried": 0.5, "largest": 10.0},
        "resolution": 0.0,
    }


@dataclasses.dataclass(frozen=True)
class Rows(Plain):
    """The same for arrays of two numbers."""

    kind = "rows"
    entries = 2
    scalar = False

    def agrees(self, seen, prior, epsilon, ops):
        return True

    def bounds(self, now, action, plan, ops):
        assert isinstance(action, np.ndarray)
        return super().bounds(now._replace(prior=0.0), ops.max(abs(action - now.prior)), plan, ops)


def test_a_structure_of_arrays_is_computed_with_as_arrays():
    made = certificate(system=Rows(largest=math.inf, carried=0.0))
    assert made.online_ops is NUMPY
    opened = made.open(state(), [2.0], NUMPY)._replace(slack=1.0)
    prior, box = np.array([1.0, 2.0]), Box(-math.inf, math.inf, "linf")
    choice = made.choose(opened, np.array([9.0, -2.0]), prior, box, NUMPY)
    np.testing.assert_allclose(choice.action, [1.0 + 0.75 * 8.0, 2.0 - 0.75 * 4.0], rtol=1e-4)
    for wish in (1e60, -1e60):
        far = made.choose(opened._replace(slack=1e9), np.array([-3.0, wish]), prior, box, NUMPY)
        assert 0.96 * 3e4 < abs(far.action[1] - 2.0) <= 3e4


def test_what_is_computed_with_follows_from_what_a_structure_is_made_of():
    others = object()
    for system, floats, numpy in ((Plain(), FLOATS, NUMPY), (Pair(), FLOATS, FLOATS), (Rows(), NUMPY, NUMPY)):
        made = certificate(system=system)
        assert (made._single(FLOATS), made._single(NUMPY), made._single(others)) == (floats, numpy, others)
    action = np.array([1.0, 2.0])
    assert certificate()._entries(1.5, FLOATS) == 1.5
    assert certificate(system=Rows())._entries(action, NUMPY) is action
    for given in (action, (1.0, 2.0)):
        entries = certificate(system=Pair())._entries(given, NUMPY)
        assert entries == [1.0, 2.0]
        assert [type(each) for each in entries] == [float, float]


def test_a_proposal_is_moved_inside_what_can_be_played_and_what_the_bounds_hold_for():
    for low, high in ((-3.0, 4.0), (-20.0, 20.0)):
        for wish in (-30.0, -5.0, 0.0, 5.0, 30.0):
            expected = min(max(wish, low, -10.0), high, 10.0)
            assert certificate()._inside(wish, Box(low, high, "l2"), FLOATS) == expected


def test_what_is_seen_in_many_episodes_is_opened_at_once():
    made = certificate()
    many = made.open(state(account=np.array([1.0, 2.0])), [np.array([2.0, 5.0])], NUMPY, 1e-6)
    for i in range(2):
        one = made.open(state(account=1.0 + i), [(2.0, 5.0)[i]], FLOATS, 1e-6)
        assert (many.slack[i], many.seen[0][i], many.breached[i]) == (one.slack, one.seen[0], one.breached)
    assert made.open(state(), [2.0], FLOATS).epsilon == FLOAT64
    first = made.start(FLOATS)
    assert made.update(first, taken(), Outcome(5.0), FLOATS).account == 5.0 - 3.0 * 1.5


@dataclasses.dataclass(frozen=True)
class Away(Plain):
    """It is not the prior but the backup, resting at -1, from which distances cost."""

    def bounds(self, now, action, plan, ops):
        size = abs(action + 1.0)
        return Bounds((size - 6.0,), 9.0 - 8.0 * plan, (float(plan), size))


def test_what_is_no_proposal_moves_nothing_away_from_the_start():
    """The backup is carried and the prior is not safe: half way to it would be, but nobody asked for that."""
    made = certificate(system=Away())
    opened = made.open(state(backup=1.0), [2.0], FLOATS)._replace(slack=-7.5)  # size <= 1.5
    assert made.choose(opened, 2.0, 2.0, BOX, FLOATS).action == pytest.approx(0.5, abs=1e-3)
    for proposal in (math.nan, math.inf):
        assert made.choose(opened, proposal, 2.0, BOX, FLOATS).action == -1.0
    # What closing a round needs is taken from the bounds for the prior as backup.
    for each in (
        made.choose(opened, 0.0, 2.0, BOX, FLOATS).taken,
        made.weigh(opened, 2.0, 0.0, BOX, FLOATS)[1],
    ):
        assert (each.now, each.ceiling, each.step) == (-5.0, 9.0, (0.0, 1.0))


def test_the_least_excess_is_a_number_if_one_of_them_is():
    for excesses, least in (
        ([2.0, 1.0, 3.0], 1.0),
        ([1.0, 2.0], 1.0),
        ([math.nan, 2.0, 1.0], 1.0),
        ([1.0, math.nan], 1.0),
        ([math.nan], math.inf),
        ([-math.inf], -math.inf),
    ):
        assert least_excess(excesses, FLOATS) == least


def test_a_point_on_the_way_is_exactly_the_start_or_the_wish_at_the_ends():
    start, wish = 0.8, 0.3
    assert start + 1.0 * (wish - start) != wish
    for share, expected in ((0.0, start), (1.0, wish), (2.0, wish), (0.97, start + 0.97 * (wish - start))):
        assert on_the_way(start, wish, share, FLOATS) == expected
        assert on_the_way([start, 1.0], [wish, 1.0], share, FLOATS) == [expected, 1.0]
    assert on_the_way(start, math.inf, 0.0, FLOATS) == start


def test_nothing_is_searched_farther_away_than_ten_thousand_times_the_starts_size():
    for start, way, share in ((2.0, -4e4, 0.75), (-2.0, 4e4, 0.75), (-2.0, -2.9e4, 1.0), (0.0, 0.0, 1.0)):
        assert certificate()._farthest(start, start + way, FLOATS) == pytest.approx(share, rel=1e-12)
    for start, way in (([1.0, -2.0], [-4e4, 1.0]), ([1.0, -2.0], [1.0, 4e4]), ([-2.0, -1.0], [-4e4, 0.0])):
        wish = [here + each for here, each in zip(start, way, strict=True)]
        assert certificate(system=Pair())._farthest(start, wish, FLOATS) == pytest.approx(0.75, rel=1e-12)
        rows = certificate(system=Rows())._farthest(np.array(start), np.array(wish), NUMPY)
        assert rows == pytest.approx(0.75, rel=1e-12)
    many = certificate()._farthest(np.array([2.0, -2.0]), np.array([2.0 - 4e4, -3.0]), NUMPY)
    np.testing.assert_allclose(many, [0.75, 1.0], rtol=1e-12)


@dataclasses.dataclass(frozen=True)
class Second(Pair):
    """Only the second entry costs anything."""

    def bounds(self, now, action, plan, ops):
        return Plain.bounds(self, now._replace(prior=now.prior[1]), action[1], plan, ops)


def test_one_entry_that_is_not_a_number_is_enough_to_stay_at_the_start():
    made = certificate(system=Second())
    opened = made.open(state(), [2.0], FLOATS)._replace(slack=5.0)
    for wish, expected in (([3.0, 4.0], [3.0, 4.0]), ([math.nan, 4.0], [1.0, 2.0])):
        choice = made.choose(opened, np.array(wish), np.array([1.0, 2.0]), BOX, NUMPY)
        np.testing.assert_array_equal(choice.action, expected)


@dataclasses.dataclass(frozen=True)
class Alone(Plain):
    """The prior is its only backup."""

    backups = ()


def test_without_further_backups_the_search_begins_at_the_prior():
    made = certificate(system=Alone())
    opened = made.open(state(), [2.0], FLOATS)
    for slack, expected in ((5.0, 3.0), (-20.0, 2.0)):
        choice = made.choose(opened._replace(slack=slack), 3.0, 2.0, BOX, FLOATS)
        assert (choice.action, choice.breached) == (expected, False)


def test_of_two_lists_of_entries_one_is_taken_entry_by_entry():
    for ops in (FLOATS, NUMPY):
        for condition, expected in ((True, [1.0, 2.0]), (False, [3.0, 4.0])):
            taken = either(condition, [1.0, 2.0], [3.0, 4.0], ops)
            assert isinstance(taken, list)
            assert taken == expected
