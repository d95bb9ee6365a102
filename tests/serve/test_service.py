"""The service: the same request, the same answer; what is refused changes nothing; a gap is played by the backup."""

from __future__ import annotations

import json
import math
import threading

import numpy as np
import pytest

from tether import AssumptionBreach, Contract, LipschitzCertificate, Sensitivity, geometric
from tether.certificates import Structured
from tether.core.journal import text
from tether.serve.faults import make_plant, prior
from tether.serve.plant import Plant
from tether.serve.replies import Answer, Conflict, Full, Refused, Unknown
from tether.serve.service import Service
from tether.systems.registry import find

CERTIFICATE = LipschitzCertificate(
    Contract(lam=0.5, b=1.0, horizon=40, cost_floor=1.0), Sensitivity(2.0, 1.0, geometric(0.5))
)


def made(**options):
    return Service({"p": Plant(CERTIFICATE, lambda seen: 20.0 - seen, low=-10.0, high=10.0, **options)})


@pytest.fixture
def service():
    fresh = made()
    fresh.reset("p", "e")
    return fresh


def state(service):
    return service._book.snapshot()


def played(service, rounds, first=1, applied=None):
    for h in range(first, first + rounds):
        service.act("p", "e", h, 18.0, 9.0)
        service.observe("p", "e", h, 1.2, applied=applied)


def test_an_answer_is_plain_json(service):
    answer = service.act("p", "e", 1, 18.0, 9.0)
    assert json.loads(json.dumps(answer._asdict(), allow_nan=False)) == answer._asdict()
    assert answer.action == pytest.approx(2.75, abs=1e-3)
    assert (answer.prior_action, answer.reason) == (2.0, "too far")
    assert (answer.backup, answer.policy, answer.round, answer.account) == ("prior", "prior", 1, 1)


@pytest.mark.parametrize(
    "repeat",
    [
        lambda s: s.reset("p", "e"),
        lambda s: s.act("p", "e", 3, 18.0, 9.0),
        lambda s: s.observe("p", "e", 3, 1.2),
        lambda s: s.act("p", "e", 1, 18.0, 9.0),
    ],
)
def test_the_same_request_gets_the_same_answer_and_changes_nothing(service, repeat):
    answers = [service.act("p", "e", 1, 18.0, 9.0)]
    service.observe("p", "e", 1, 1.2)
    played(service, 2, 2)
    repeat(service)
    before, first = state(service), repeat(service)
    assert text.dumps(list(repeat(service))) == text.dumps(list(first))
    assert service.act("p", "e", 1, 18.0, 9.0) == answers[0]
    assert state(service) == before


@pytest.mark.parametrize(
    ("error", "request_", "complaint"),
    [
        (Conflict, lambda s: s.act("p", "e", 3, 18.0, 8.0), "another content"),
        (Conflict, lambda s: s.act("p", "e", 2, 18.0, math.nan), "another content"),
        (Conflict, lambda s: s.observe("p", "e", 2, 1.3), "another content"),
        (Conflict, lambda s: s.observe("p", "e", 2, 1.2, applied=2.0), "another content"),
        (Unknown, lambda s: s.observe("p", "e", 4, 1.2), "has not been asked"),
        (Unknown, lambda s: s.act("q", "e", 3, 18.0, 9.0), "no plant 'q'; there are p"),
        (Unknown, lambda s: s.act("p", "f", 3, 18.0, 9.0), "no episode 'f'; open it with reset"),
        (Unknown, lambda s: s.end("p", "f", "me", "why"), "no episode"),
        (Unknown, lambda s: s.report("p", "e", 2, 1.0), "does not wait for a cost"),
        (Refused, lambda s: s.act("p", "e", 0, 18.0, 9.0), "from 1 to the horizon 40, got 0"),
        (Refused, lambda s: s.act("p", "e", 41, 18.0, 9.0), "from 1 to the horizon 40, got 41"),
        (Refused, lambda s: s.act("p", "e", 4.0, 18.0, 9.0), "whole number"),
        (Refused, lambda s: s.act("p", "e", True, 18.0, 9.0), "whole number"),
        (Refused, lambda s: s.act("p", 7, 4, 18.0, 9.0), "must be text"),
        (Refused, lambda s: s.act("p", "e", 4, object(), 9.0), "cannot be written down"),
        (Refused, lambda s: s.act("p", "e", 4, 18.0, {1: 2}), "keys of a mapping"),
        (Refused, lambda s: s.act("p", "e", 4, 18.0, 9.0, prior=1.0), "has a prior of its own"),
        (Refused, lambda s: s.act("p", "e", 4, None, 9.0), "the prior raised TypeError"),
        (Refused, lambda s: s.act("p", "e", 4, math.nan, 9.0), "the prior's action is nan"),
        (Refused, lambda s: s.observe("p", "e", 3, 1.2, applied="much"), "applied must be a finite action"),
        (
            Refused,
            lambda s: s.observe("p", "e", 3, 1.2, applied=[1.0, 2.0]),
            "applied must be a finite action",
        ),
        (Refused, lambda s: s.observe("p", "e", 3, 1.2, revealed={"n": 1.0}), "no use of what is revealed"),
        (Refused, lambda s: s.observe("p", "e", 3, 1.2, override="me"), "needs what was applied"),
        (Refused, lambda s: s.end("p", "e", " ", "why"), "say who does this, and why"),
        (Refused, lambda s: s.prior_now("p", "me", ""), "say who does this, and why"),
        (Unknown, lambda s: s.prior_now("q", "me", "why"), "no plant 'q'"),
        (Refused, lambda s: s.reset("p", ""), "1 to 200 characters"),
        (Refused, lambda s: s.reset("p", "x" * 201), "1 to 200 characters"),
        (Refused, lambda s: s.report("p", "e", 2, None), "once it is known"),
    ],
)
def test_what_is_refused_changes_nothing(service, error, request_, complaint):
    played(service, 2)
    service.act("p", "e", 3, 18.0, 9.0)
    before = state(service)
    with pytest.raises(error, match=complaint):
        request_(service)
    assert state(service) == before


def test_a_gap_is_played_by_the_prior_until_the_account_is_whole(service):
    played(service, 1)
    service.act("p", "e", 2, 18.0, 9.0)
    gap = service.act("p", "e", 3, 17.0, 9.0)  # nothing is known of round 2
    assert (gap.action, gap.reason, gap.account, gap.backup, gap.margin) == (3.0, "gap", 2, "prior", None)
    later = service.act("p", "e", 5, 17.0, 9.0)  # nor of round 4
    assert (later.action, later.reason, later.account) == (3.0, "gap", 2)
    assert service.observe("p", "e", 5, 1.1, applied=3.0).account == 2
    assert service.observe("p", "e", 3, 1.1, applied=3.0).account == 2
    assert service.observe("p", "e", 2, 1.2).account == 4
    assert service.act("p", "e", 4, 17.0, 9.0).reason == "gap"  # too late: something has been played
    assert service.observe("p", "e", 4, 1.1, applied=3.0).account == 6
    assert service.act("p", "e", 6, 18.0, 9.0).reason == "too far"


def test_the_account_after_a_gap_is_that_without_one(service):
    """Rounds 2 to 4 reach the service in any order; what was played in them is 2.75, 3.0 and 3.0."""
    straight = made()
    straight.reset("p", "e")
    plays = {1: 2.75, 2: 2.75, 3: 3.0, 4: 3.0}
    for h, action in plays.items():
        straight.act("p", "e", h, 18.0, 9.0)
        straight.observe("p", "e", h, 1.2, applied=action)
    service.act("p", "e", 1, 18.0, 9.0)
    for h in (4, 3, 2):
        service.act("p", "e", h, 18.0, 9.0)
    for h in (3, 1, 4, 2):
        service.observe("p", "e", h, 1.2, applied=plays[h])
    assert service.account("p", "e") == straight.account("p", "e")


def test_an_answer_that_was_lost_and_played_is_decided_again(service):
    """The journal lost round 2, whose answer was played: sent again after round 3, it counts as what it was."""
    whole = made()
    whole.reset("p", "e")
    played(whole, 1)
    answer = whole.act("p", "e", 2, 18.0, 9.0)
    whole.observe("p", "e", 2, 1.4, applied=answer.action)
    played(service, 1)
    assert service.act("p", "e", 3, 18.0, 9.0).reason == "gap"
    assert service.act("p", "e", 2, 18.0, 9.0).reason == "gap"
    service.observe("p", "e", 2, 1.4, applied=answer.action)
    assert service.account("p", "e") == whole.account("p", "e")
    assert service._book.desk("p").episode("e").guard.overrides == ()


def test_in_a_gap_what_was_played_must_be_said(service):
    service.act("p", "e", 2, 18.0, 9.0)
    before = state(service)
    with pytest.raises(Refused, match="say with applied"):
        service.observe("p", "e", 2, 1.2)
    assert state(service) == before


def test_a_gap_has_an_end():
    service = made(longest_gap=2)
    service.reset("p", "e")
    service.act("p", "e", 2, 18.0, 9.0)
    service.act("p", "e", 3, 18.0, 9.0)
    with pytest.raises(Full, match="2 rounds of episode 'e' wait for the report of round 1"):
        service.act("p", "e", 4, 18.0, 9.0)


def test_with_other_backups_than_the_prior_a_gap_names_none():
    """Which backup the client plays on depends on which answers reached it; only the client knows."""
    carbon = find("carbon")
    env = carbon.env()
    certificate = Structured(env.contract(2.0, 2.0, 24), env.structure)
    if len(certificate.backup_names) == 1:
        pytest.skip("this structure has no other backups")
    service = Service({"p": Plant(certificate, env.prior, low=0.0)})
    service.reset("p", "e")
    gap = service.act("p", "e", 2, [4.0, 3.0, 0.0, 0.0], 5.0)
    assert (gap.action, gap.backup, gap.policy, gap.reason) == (None, None, None, "gap")
    assert service.reset("p", "e").backup == "prior"


def test_what_was_really_played_counts(service):
    service.act("p", "e", 1, 18.0, 9.0)
    service.observe("p", "e", 1, 1.2, applied=2.0)
    other = made()
    other.reset("p", "e")
    other.act("p", "e", 1, 18.0, 2.0)
    other.observe("p", "e", 1, 1.2)
    assert service.account("p", "e") == other.account("p", "e")


def test_an_operators_override_is_kept_with_who_and_why(service):
    service.act("p", "e", 1, 18.0, 9.0)
    service.observe("p", "e", 1, 1.2, applied=8.0, override="anna: maintenance")
    assert service.act("p", "e", 2, 18.0, 9.0).reason == "override"
    (kept,) = service._book.desk("p").episode("e").guard.overrides
    assert (kept.why, kept.safe) == ("anna: maintenance", False)


def test_a_cost_may_come_later(service):
    service.act("p", "e", 1, 18.0, 9.0)
    service.observe("p", "e", 1, None)
    service.act("p", "e", 2, 18.0, 9.0)
    service.report("p", "e", 1, 1.2)
    assert service.report("p", "e", 1, 1.2) == service.report("p", "e", 1, 1.2)
    assert service.status()["plants"]["p"]["episodes"][0]["cost"] == 1.2
    with pytest.raises(Conflict):
        service.report("p", "e", 1, 1.3)


def test_a_cost_may_come_later_in_a_gap_too(service):
    service.act("p", "e", 2, 18.0, 9.0)
    service.observe("p", "e", 2, None, applied=2.0)
    service.report("p", "e", 2, 1.4)
    service.act("p", "e", 1, 18.0, 9.0)
    assert service.observe("p", "e", 1, 1.2, applied=2.0).account == 3
    assert service._book.desk("p").episode("e").guard.pending == ()


def test_the_operator_has_the_prior_played_and_resumes(service):
    assert service.prior_now("p", "anna", "smoke") == ("prior now", ["p"], "anna", "smoke")
    held = service.act("p", "e", 1, 18.0, 9.0)
    assert (held.action, held.reason, held.intervened) == (2.0, "operator", True)
    assert service.status()["plants"]["p"]["held"] == {"who": "anna", "why": "smoke"}
    service.observe("p", "e", 1, 1.2)
    service.resume(None, "anna", "false alarm")
    assert service.act("p", "e", 2, 18.0, 9.0).reason == "too far"
    assert service.status()["plants"]["p"]["held"] is None


def test_an_episode_ends_at_its_horizon_or_when_it_is_told_to(service):
    played(service, 39)
    service.act("p", "e", 40, 18.0, 9.0)
    last = service.observe("p", "e", 40, 1.2)
    assert (last.over, last.account) == (True, 41)
    assert service.observe("p", "e", 40, 1.2) == last
    with pytest.raises(Refused, match="is over; open another"):
        service.act("p", "e", 41, 18.0, 9.0)
    assert service.reset("p", "e").account == 1  # the first reset's answer, and nothing is opened
    assert service.status()["plants"]["p"]["episodes"] == []
    service.reset("p", "f")
    ended = service.end("p", "f", "anna", "shift is over")
    assert ended.over
    assert service.end("p", "f", "anna", "shift is over") == ended
    with pytest.raises(Conflict):
        service.end("p", "f", "bert", "me too")


def test_so_many_episodes_may_be_open():
    service = made(open_episodes=2)
    service.reset("p", "a")
    service.reset("p", "b")
    with pytest.raises(Full, match="2 episodes of plant 'p' are open"):
        service.reset("p", "c")
    service.end("p", "a", "me", "done")
    service.reset("p", "c")


def test_what_is_long_ago_is_forgotten_and_refused():
    service = made(remember=2)
    service.reset("p", "e")
    played(service, 30)
    with pytest.raises(Unknown, match="longer ago than the 2 rounds"):
        service.act("p", "e", 1, 18.0, 9.0)
    with pytest.raises(Unknown, match="longer ago than the 2 rounds"):
        service.observe("p", "e", 1, 1.2)
    assert len(service._book.desk("p").episode("e").memory) < 20
    assert service.act("p", "e", 29, 18.0, 9.0).round == 29


def test_a_breach_is_an_event_of_the_plant_and_no_warning(service, recwarn):
    with service.subscribe() as events:
        service.act("p", "e", 1, 18.0, 9.0)
        receipt = service.observe("p", "e", 1, 0.5)
        assert "not a finite number of at least the floor" in receipt.breach
        answer = service.act("p", "e", 2, 18.0, 9.0)
        assert (answer.action, answer.reason, answer.margin) == (2.0, "breach", None)
        kinds = [(event["kind"], event["breach"] is None) for event in iter(lambda: events.get(0), None)]
    assert kinds == [("act", True), ("observe", False), ("act", False)]
    assert service.status()["plants"]["p"]["breaches"] == 1
    assert not [each for each in recwarn if each.category is AssumptionBreach]


def test_who_does_not_read_its_events_loses_the_oldest(service):
    events = service.subscribe(size=2)
    played(service, 2)
    assert events.lost == 2
    assert [events.get(0)["round"], events.get(0)["kind"], events.get(0.0)] == [2, "observe", None]
    events.close()
    played(service, 1, 3)
    assert events.get(0) is None


def test_the_prior_may_be_sent_along():
    service = Service({"north": make_plant("north", own_prior=False)})
    service.reset("north", "e")
    with pytest.raises(Refused, match="send the prior's action"):
        service.act("north", "e", 1, [1.0], 5.0)
    for bad in ("text", math.nan, [[1.0]], [], {"a": 1.0}, [[1.0], 2.0]):
        with pytest.raises(Refused, match="no action is known to be safe"):
            service.act("north", "e", 1, [1.0], 5.0, prior=bad)
    assert service.act("north", "e", 1, [1.0], 5.0, prior=prior([1.0])).prior_action == -0.25


def test_a_prior_that_fails_leaves_the_round_to_be_asked_again():
    broken = [True]

    def flaky(seen):
        if broken[0]:
            raise OSError("no connection")
        return np.array([0.5])

    service = Service({"p": Plant(CERTIFICATE, flaky)})
    service.reset("p", "e")
    with pytest.raises(Refused, match="no connection"):
        service.act("p", "e", 1, 18.0, 1.0)
    broken[0] = False
    answer = service.act("p", "e", 1, 18.0, 0.6)
    assert (answer.action, answer.prior_action, answer.breach) == ([0.6], [0.5], None)


def test_a_prior_that_returns_no_numbers_is_refused():
    service = Service({"p": Plant(CERTIFICATE, lambda seen: object())})
    service.reset("p", "e")
    with pytest.raises(Refused, match="the prior returned what is no action"):
        service.act("p", "e", 1, 18.0, 1.0)


def test_a_batch_is_done_in_order_and_each_is_answered_by_itself(service):
    done = service.batch(
        [
            ("act", {"plant": "p", "episode": "e", "round": 1, "observation": 18.0, "proposal": 9.0}),
            ("act", {"plant": "p", "episode": "e", "round": 1, "observation": 18.0, "proposal": 8.0}),
            ("observe", {"plant": "p", "episode": "e", "round": 1, "cost": 1.2}),
            ("prior_now", {"plant": None, "who": "me", "why": "no"}),
            ("act", {"plant": "p"}),
            ("reset", {"plant": "p", "episode": "f"}),
        ]
    )
    kinds = [type(each) for each in done]
    assert kinds[:2] == [Answer, Conflict]
    assert kinds[3:5] == [Refused, Refused]
    assert (done[2].account, done[5].episode) == (2, "f")
    assert service.batch([]) == []


def test_threads_that_repeat_a_request_get_one_answer(service):
    answers = []

    def ask():
        answers.extend(service.act("p", "e", 1, 18.0, 9.0) for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert set(map(str, answers)) == {str(answers[0])}
    assert service.status()["plants"]["p"]["decisions"] == 1


def test_a_request_that_breaks_the_book_stops_the_service(service, monkeypatch):
    """Nothing may be decided with a book that is half way between two states."""
    monkeypatch.setattr(service._book, "do", lambda request, content: 1 / 0)
    with pytest.raises(Exception, match="may have been done in part"):
        service.act("p", "e", 1, 18.0, 9.0)
    monkeypatch.undo()
    with pytest.raises(Exception, match="start the service again"):
        service.act("p", "e", 1, 18.0, 9.0)


@pytest.mark.parametrize(
    ("plants", "complaint"),
    [
        ({"p": CERTIFICATE}, "Plants by name"),
        ({1: Plant(CERTIFICATE)}, "Plants by name"),
    ],
)
def test_what_is_no_plant_is_refused(plants, complaint):
    with pytest.raises(TypeError, match=complaint):
        Service(plants)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"prior": 3.0}, TypeError),
        ({"low": 2.0, "high": 1.0}, ValueError),
        ({"open_episodes": 0}, ValueError),
        ({"remember": 1.5}, TypeError),
        ({"longest_gap": 0}, ValueError),
        ({"norm": "l7"}, ValueError),
    ],
)
def test_a_plant_that_cannot_be_is_refused(options, error):
    with pytest.raises(error):
        Plant(CERTIFICATE, **options)


def test_the_client_is_told_how_to_play_the_backup():
    service = made(policies={"prior": "hold 20 degrees"})
    assert service.reset("p", "e").policy == "hold 20 degrees"
    assert service.act("p", "e", 1, 18.0, 9.0).policy == "hold 20 degrees"
