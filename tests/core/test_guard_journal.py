"""A guard with a journal: whatever it had decided when it died is what another goes on with."""

from __future__ import annotations

import copy
import json
import pickle
import random

import numpy as np
import pytest

import tether
from tether import AssumptionBreach, Guard, GuardMisuse, PriorFailed, geometric, table
from tether.core.journal import text
from tether.core.journal.journal import Differs, Journal, JournalFailed, JournalInUse
from tether.serve import reading
from tether.serve.fake_disk import FakeDisk
from tether.serve.plant import Plant

CONTRACT = tether.Contract(lam=0.5, b=1.0, horizon=12, cost_floor=1.0)
P = {"geometric": geometric(0.5), "table": table([0.5**n for n in range(12)])}


def certificate(p="geometric"):
    return tether.LipschitzCertificate(CONTRACT, tether.Sensitivity(2.0, 1.0, P[p]))


def prior(seen):
    return 20.0 - float(np.sum(seen))


def made(disk, p="geometric", **options):
    return Guard(certificate(p), prior, -10.0, 10.0, journal=Journal("j", disk=disk, **options))


def again(disk, **options):
    disk.die()
    return Guard.recover(Journal("j", disk=disk), prior, **options)


def state(guard):
    return json.dumps(guard.state_dict())


CALLS = [
    lambda g: g.act([18.0], 9.0),
    lambda g: g.observe(1.2),
    lambda g: g.act(np.array([18.0], np.float32), np.float32(1.7)),
    lambda g: g.observe(np.float32(1.3), applied=2.5),
    lambda g: g.act(observation=(18.0, 0.1), proposal=float("nan")),
    lambda g: g.observe(None),
    lambda g: g.act({"level": 18.0}["level"], "rubbish"),
    lambda g: g.report(3, 1.1),
    lambda g: g.observe(1.2, applied=9.0, override="anna: test"),
    lambda g: g.act(18, object()),
    lambda g: g.observe(cost=1.2, reward=3.0, next_observation=[1.0]),
    lambda g: g.reset(),
    lambda g: g.act(18.0, 9.0),
    lambda g: g.observe(1.1),
]


@pytest.mark.parametrize("p", P)
@pytest.mark.parametrize("segment_bytes", [200, 10**6])
def test_a_guard_that_dies_after_any_call_goes_on_as_it_was(p, segment_bytes):
    disk = FakeDisk(random.Random(0))
    guard, steady = made(disk, p, segment_bytes=segment_bytes), Guard(certificate(p), prior, -10.0, 10.0)
    for call in CALLS:
        mine, its = call(guard), call(steady)
        assert mine is its is None or mine._replace(proposal=None) == its._replace(proposal=None)
        assert state(guard) == state(steady)
        guard = again(disk)
        assert state(guard) == state(steady)


def test_a_record_is_this():
    """A journal is read by later versions: the format is fixed."""
    disk = FakeDisk(random.Random(0))
    guard = made(disk)
    decision = guard.act([18.0], proposal=9.0)
    disk.die()
    found = Journal("j", disk=disk).recovered
    assert found.snapshot.startswith('{"version":1,"guard":{"version":')
    name, _, reply, said, content = text.loads(found.records[0])
    expected = [*decision[:3], *decision[4:8], "too far", "prior", None]
    assert (name, reply, said, content) == ("act", expected, [2.0], [[[18.0], 9.0], {}])


def test_what_was_raised_is_written_down_with_nothing_said():
    disk = FakeDisk(random.Random(0))
    says = iter([2.0])
    guard = Guard(certificate(), lambda seen: next(says), journal=Journal("j", disk=disk))
    guard.act(18.0, 9.0)
    guard.observe(1.2)
    with pytest.warns(AssumptionBreach), pytest.raises(PriorFailed):
        guard.act(18.0, 9.0)
    disk.die()
    _, _, reply, said, _ = text.loads(Journal("j", disk=disk).recovered.records[2])
    assert (reply, said) == ({"raised": "PriorFailed"}, [])


def test_what_cannot_be_written_of_the_prior_is_written_as_text():
    disk = FakeDisk(random.Random(0))
    guard = Guard(certificate(), lambda seen: {1.0}, journal=Journal("j", disk=disk))
    with pytest.warns(AssumptionBreach), pytest.raises(PriorFailed):
        guard.act(18.0, 9.0)
    disk.die()
    assert text.loads(Journal("j", disk=disk).recovered.records[0])[3] == ["the prior gave no action"]


def test_a_journal_of_another_version_is_refused():
    disk = FakeDisk(random.Random(0))
    with Journal("j", disk=disk) as journal:
        journal.begin('{"version":2,"guard":{}}')
    with pytest.raises(ValueError, match="is not the journal of a guard"):
        again(disk)


def test_a_call_returns_when_it_is_durable_and_segments_follow_each_other():
    disk = FakeDisk(random.Random(0))
    guard = Guard(certificate(), prior, journal=Journal("j", "power", segment_bytes=400, disk=disk))
    for _ in range(4):
        guard.act(18.0, 9.0)
        assert guard.journal.lag == 0
        guard.observe(1.2)
    assert guard.journal.segments > 1


def test_a_rotation_that_closes_the_journal_is_told():
    disk = FakeDisk(random.Random(0))
    guard = made(disk, segment_bytes=1)

    def broken(*_):
        raise OSError("broken")

    disk.rename = broken
    with pytest.raises(JournalFailed, match="could not be put in its place"):
        guard.act(18.0, 9.0)


def test_the_action_of_an_open_round_is_told():
    disk = FakeDisk(random.Random(0))
    guard = made(disk)
    assert guard.open_action is None
    decision = guard.act(18.0, 9.0)
    recovered = again(disk)
    assert recovered.open_action == decision.action
    with pytest.raises(GuardMisuse, match="already has an action"):
        recovered.act(18.0, 9.0)
    recovered.observe(1.2, applied=2.0)
    assert recovered.open_action is None


def test_on_a_real_disk(tmp_path):
    guard = Guard(certificate(), prior, -10.0, 10.0, journal=tmp_path / "journal")
    guard.act(18.0, 9.0)
    with pytest.raises(JournalInUse):
        Guard.recover(tmp_path / "journal", prior)
    guard.journal.close()
    with pytest.raises(ValueError, match=r"go on with Guard\.recover"):
        Guard(certificate(), prior, journal=tmp_path / "journal")
    recovered = Guard.recover(tmp_path / "journal", prior, durability="power")
    assert recovered.journal.durability == "power"
    assert state(recovered) == state(guard)
    recovered.journal.close()
    with pytest.raises(ValueError, match="has no journal; begin one"):
        Guard.recover(tmp_path / "nothing", prior)
    assert reading.verify(tmp_path / "journal").kind == "guard"
    assert reading.replay(tmp_path / "journal") == 1
    assert [row["kind"] for row in reading.rows(tmp_path / "journal")] == ["act"]


def test_a_prior_that_fails_is_written_down_as_well():
    disk = FakeDisk(random.Random(0))

    def broken(seen):
        raise OSError("no connection")

    guard = Guard(certificate(), broken, journal=Journal("j", disk=disk))
    with pytest.warns(AssumptionBreach), pytest.raises(PriorFailed):
        guard.act(18.0, 9.0)
    assert guard.prior is broken
    recovered = again(disk)
    assert recovered.breach is not None
    assert recovered.round == 1


def test_a_prior_that_says_what_cannot_be_written_gave_no_action():
    disk = FakeDisk(random.Random(0))
    guard = Guard(certificate(), lambda seen: object(), journal=Journal("j", disk=disk))
    with pytest.warns(AssumptionBreach), pytest.raises(PriorFailed):
        guard.act(18.0, 9.0)
    assert again(disk).breach is not None


def test_where_breaches_are_errors_they_are_written_down_too():
    """Warnings are errors here: the breach has happened all the same."""
    disk = FakeDisk(random.Random(0))
    guard = made(disk)
    guard.act(18.0, 9.0)
    with pytest.raises(AssumptionBreach):
        guard.observe(0.1)
    assert state(again(disk)) == state(guard)


def test_what_cannot_be_written_is_refused_before_anything_changes():
    disk = FakeDisk(random.Random(0))
    guard = made(disk)
    before = state(guard)
    with pytest.raises(TypeError, match="cannot be written down"):
        guard.act(object(), 9.0)
    assert state(guard) == before
    guard.act(18.0, 9.0)
    with pytest.raises(TypeError, match="cannot be written down"):
        guard.observe(object())
    assert state(again(disk)) == state(guard)


def test_a_guard_whose_journal_is_closed_decides_nothing(tmp_path):
    guard = Guard(certificate(), prior, journal=tmp_path)
    guard.journal.close()
    before = state(guard)
    with pytest.raises(JournalFailed, match="is closed"):
        guard.act(18.0, 9.0)
    assert state(guard) == before


def test_a_call_out_of_order_is_not_written():
    disk = FakeDisk(random.Random(0))
    guard = made(disk)
    with pytest.raises(GuardMisuse):
        guard.observe(1.2)
    assert guard.journal.last == 0


def test_a_full_disk_gives_no_decision_and_the_round_is_closed_with_what_was_played():
    disk = FakeDisk(random.Random(0))
    guard, steady = made(disk), Guard(certificate(), prior, -10.0, 10.0)
    disk.space = 10
    with pytest.raises(JournalFailed):
        guard.act(18.0, 9.0)
    with pytest.raises(JournalFailed):
        guard.observe(1.2, applied=2.0)
    disk.space = None
    guard.observe(1.2, applied=2.0)
    steady.act(18.0, 9.0)
    steady.observe(1.2, applied=2.0)
    assert state(again(disk)) == state(guard) == state(steady)


def test_a_rotation_that_fails_does_not_disturb():
    disk = FakeDisk(random.Random(0))
    guard = made(disk, segment_bytes=1)
    real = disk.create

    def full(path):
        raise OSError("full")

    disk.create = full
    guard.act(18.0, 9.0)
    guard.observe(1.2)
    disk.create = real
    assert state(again(disk)) == state(guard)


def test_another_certificate_does_not_go_on():
    disk = FakeDisk(random.Random(0))
    made(disk).act(18.0, 9.0)
    with pytest.raises(ValueError, match="another certificate"):
        again(disk, certificate=certificate("table"))


def test_decisions_that_do_not_come_out_again_are_named(monkeypatch):
    disk = FakeDisk(random.Random(0))
    made(disk).act(18.0, 9.0)
    monkeypatch.setattr(tether.LipschitzCertificate, "radius", lambda *args, **named: 0.25)
    with pytest.raises(Differs, match=r"record 1: act led to .* but now it leads to"):
        again(disk)


def test_the_journal_of_a_service_is_not_one_of_a_guard(tmp_path):
    from tether.serve.service import Service

    Service({"p": Plant(certificate(), prior)}, tmp_path).close()
    with pytest.raises(ValueError, match="is not the journal of a guard"):
        Guard.recover(tmp_path, prior)


def test_a_copy_of_a_guard_writes_no_journal():
    disk = FakeDisk(random.Random(0))
    guard = made(disk)
    for other in (copy.deepcopy(guard), pickle.loads(pickle.dumps(guard))):
        assert other.journal is None
        other.act(18.0, 9.0)
    assert guard.journal.last == 0
    assert state(guard) != state(other)
