"""After a crash the service is what it was: every answered decision is there, and what is repeated gets its answer."""

from __future__ import annotations

import contextlib
import random

import pytest

from tether import Ranges
from tether.core.journal import text
from tether.core.journal.journal import Differs, Journal
from tether.core.journal.segment import JournalDamaged
from tether.serve import reading
from tether.serve.fake_disk import Crash, FakeDisk
from tether.serve.faults import CONTRACTS, make_plant, prior
from tether.serve.plant import Plant
from tether.serve.replies import Conflict, Refused, Unavailable, Unknown
from tether.serve.service import Service

PLANTS = {"north": make_plant("north"), "south": make_plant("south", own_prior=False)}


def requests(seed=0, rounds=8):
    """A disordered day: two plants, gaps, an operator, an end."""
    dice = random.Random(seed)
    calls = []
    for plant in PLANTS:
        calls.append(("reset", {"plant": plant, "episode": "day"}))
        for h in range(1, rounds + 1):
            x = dice.uniform(0.5, 2.0)
            sent = {} if plant == "north" else {"prior": prior([x])}
            where = {"plant": plant, "episode": "day", "round": h}
            calls.append(
                ("act", {**where, "observation": [x], "proposal": dice.choice((5.0, None, 0.0)), **sent})
            )
            calls.append(("observe", {**where, "cost": 1.0 + 2.0 * x, "applied": prior([x])}))
    for i in range(0, len(calls) - 1, 5):
        calls[i], calls[i + 1] = calls[i + 1], calls[i]
    calls.insert(len(calls) // 3, ("prior_now", {"plant": None, "who": "anna", "why": "drill"}))
    calls.insert(len(calls) // 2, ("resume", {"plant": "north", "who": "anna", "why": "over"}))
    calls.append(("end", {"plant": "south", "episode": "day", "who": "anna", "why": "enough"}))
    return calls


def ask(service, calls):
    for kind, arguments in calls:
        with contextlib.suppress(Unknown, Refused, Conflict):
            getattr(service, kind)(**arguments)


def state(service):
    return service._book.snapshot()


def started(disk, durability="process", plants=PLANTS, **options):
    return Service(plants, Journal("j", durability, disk=disk, **options))


@pytest.mark.parametrize("segment_bytes", [300, 10**6])
def test_a_service_that_dies_after_any_request_comes_back_as_it_was(segment_bytes):
    calls, disk = requests(), FakeDisk(random.Random(0))
    steady = Service(PLANTS)
    service = started(disk, segment_bytes=segment_bytes, keep=2)
    for i, call in enumerate(calls):
        ask(service, [call])
        ask(steady, [call])
        if i % 3 == 0:
            disk.die()
            service = started(disk, segment_bytes=segment_bytes, keep=2)
        assert state(service) == state(steady)
    assert service.status()["plants"] == steady.status()["plants"]


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_within_a_request_leaves_it_done_or_not_done(seed):
    dice = random.Random(seed)
    disk, calls = FakeDisk(dice), requests(seed)
    durability = dice.choice(("process", "power"))
    service = started(disk, durability, segment_bytes=600)
    steady = Service(PLANTS)
    disk.crash_in = dice.randint(1, 60)
    for i, call in enumerate(calls):
        before = state(steady)
        try:
            ask(service, [call])
            ask(steady, [call])
        except Crash:
            ask(steady, [call])
            disk.lose_power() if durability == "power" else disk.die()
            service = started(disk, durability)
            assert state(service) in (before, state(steady))
            ask(service, calls[i:])
            ask(steady, calls[i + 1 :])
            break
    assert service.account("north", "day") == steady.account("north", "day")


def test_what_is_repeated_after_a_crash_gets_its_answer():
    disk = FakeDisk(random.Random(0))
    service = started(disk)
    service.reset("north", "day")
    answer = service.act("north", "day", 1, [1.0], 5.0)
    disk.die()
    again = started(disk)
    assert text.dumps(list(again.act("north", "day", 1, [1.0], 5.0))) == text.dumps(list(answer))
    assert again.recovered == {"records": 2, "last": 2, "cut": None}


def test_a_full_disk_keeps_the_answer_back_and_then_gives_it():
    disk = FakeDisk(random.Random(0))
    service, steady = started(disk), Service(PLANTS)
    for each in (service, steady):
        each.reset("north", "day")
    disk.space = 30
    for _ in range(2):
        with pytest.raises(Unavailable, match="no space left"):
            service.act("north", "day", 1, [1.0], 5.0)
    with pytest.raises(Unavailable):
        service.prior_now(None, "anna", "smoke")
    disk.space = None
    assert service.act("north", "day", 1, [1.0], 5.0) == steady.act("north", "day", 1, [1.0], 5.0)
    assert service.status()["plants"]["north"]["held"] is None
    disk.die()
    assert state(started(disk)) == state(service)


def test_an_answer_waits_until_it_is_durable(monkeypatch):
    disk = FakeDisk(random.Random(0))
    service = started(disk, "power")
    service.reset("north", "day")
    waited = []
    monkeypatch.setattr(service._journal, "wait", waited.append)
    service.act("north", "day", 1, [1.0], 5.0)
    service.act("north", "day", 1, [1.0], 5.0)
    service.batch([("observe", {"plant": "north", "episode": "day", "round": 1, "cost": 2.0}), ("no", {})])
    assert waited == [2, 2, 3]


def test_a_service_that_was_stopped_in_good_order_leaves_nothing_to_be_done_again(tmp_path):
    service = Service(PLANTS, tmp_path / "journal")
    ask(service, requests())
    service.close()
    before = state(service)
    with pytest.raises(Unavailable, match="is closed"):
        service.prior_now(None, "anna", "too late")
    assert state(service) == before
    again = Service(PLANTS, tmp_path / "journal")
    assert again.recovered["records"] == 0
    assert state(again) == state(service)
    again.close()
    Service(PLANTS).close()


def altered(**changes):
    contract = CONTRACTS["north"]
    certificate = type(PLANTS["north"].certificate)(
        type(contract)(contract.lam, changes.pop("b", contract.b), contract.horizon, contract.cost_floor),
        PLANTS["north"].certificate.bounds,
    )
    return {**PLANTS, "north": Plant(certificate, prior, low=-20.0, high=20.0, resolution=0.0, **changes)}


def test_a_plant_with_open_episodes_cannot_be_exchanged(tmp_path):
    service = Service(PLANTS, tmp_path)
    service.reset("north", "day")
    service.close()
    for plants, complaint in [
        (altered(b=0.2), "plant 'north' has open episodes under another certificate"),
        (altered(policies={"prior": "steady"}), "plant 'north' has open episodes under another certificate"),
        ({"south": PLANTS["south"]}, "plant 'north' has open episodes in the journal but is not configured"),
    ]:
        with pytest.raises(ValueError, match=complaint):
            Service(plants, tmp_path)
    Service(altered(open_episodes=2), tmp_path).close()  # a limit may change
    service = Service(PLANTS, tmp_path)
    service.end("north", "day", "anna", "upgrade")
    service.close()
    Service({"south": PLANTS["south"]}, tmp_path).close()
    Service(altered(b=0.2), tmp_path).close()


def test_answers_that_do_not_come_out_again_stop_the_service():
    disk = FakeDisk(random.Random(0))
    service = started(disk)
    service.reset("north", "day")
    service.act("north", "day", 1, [1.0], 5.0)
    disk.die()
    with pytest.raises(
        Differs, match=r"record 2: act of round 1 of 'north', 'day': the journal has .* now gives"
    ):
        started(disk, plants=altered(b=0.2))


def test_what_the_prior_said_is_not_asked_again():
    disk = FakeDisk(random.Random(0))
    service = started(disk)
    service.reset("north", "day")
    service.act("north", "day", 1, [1.0], 5.0)
    before = state(service)
    disk.die()
    forgetful = {
        **PLANTS,
        "north": Plant(PLANTS["north"].certificate, lambda _: 1 / 0, -20.0, 20.0, resolution=0.0),
    }
    assert state(started(disk, plants=forgetful)) == before


def test_a_journal_of_another_version_is_refused():
    disk = FakeDisk(random.Random(0))
    journal = Journal("j", disk=disk)
    journal.begin('{"version":99,"plants":{}}')
    disk.die()
    with pytest.raises(ValueError, match="expected a journal of version 1, got 99"):
        started(disk)


def test_a_record_that_is_none_is_refused():
    with pytest.raises(ValueError, match="expected a record of kind, time, plant"):
        reading.records.read("[1,2]")


# Reading a journal.


@pytest.fixture
def journal(tmp_path):
    service = Service(PLANTS, Journal(tmp_path / "journal", segment_bytes=3000))
    ask(service, requests())
    service.close()
    return tmp_path / "journal"


def test_a_journal_is_verified_and_comes_out_again(journal):
    found = reading.verify(journal)
    assert (found.first, found.torn, found.kind) == (1, 0, "service")
    assert found.segments > 2
    assert reading.replay(journal) == found.last > 30


def test_a_segment_that_does_not_lead_to_the_next_is_found(journal, monkeypatch):
    real = reading.Book.snapshot
    monkeypatch.setattr(reading.Book, "snapshot", lambda book: real(book).replace("anna", "otto"))
    with pytest.raises(
        Differs, match=r"after record \d+ the state is not the one .*otto.* instead of .*anna"
    ):
        reading.replay(journal)


def test_a_changed_byte_is_found(journal):
    file = sorted(journal.glob("*.journal"))[1]
    data = bytearray(file.read_bytes())
    data[-2000] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(JournalDamaged, match=file.name):
        reading.verify(journal)


def test_a_plant_with_a_monitor_must_be_given_to_be_replayed(tmp_path):
    ranges = Ranges(limits=[(0, 0.0, 9.0, 1.0)])
    certificate = PLANTS["north"].certificate
    plants = {"north": Plant(certificate, prior, low=-20.0, high=20.0, monitor=ranges, resolution=0.0)}
    service = Service(plants, tmp_path)
    service.reset("north", "day")
    for h, x in enumerate((1.0, 2.0, 10.0), 1):
        service.act("north", "day", h, [x], 5.0)
        service.observe("north", "day", h, 3.0)
    service.close()
    with pytest.raises(ValueError, match="plant 'north' cannot be made from the journal: it has a monitor"):
        reading.replay(tmp_path)
    assert reading.replay(tmp_path, plants) == 7


def test_a_journal_is_a_table(journal, tmp_path):
    pl = pytest.importorskip("polars")
    assert reading.export(journal, tmp_path / "table.parquet") == reading.verify(journal).last
    table = pl.read_parquet(tmp_path / "table.parquet")
    assert table.columns == list(reading.COLUMNS)
    acts = table.filter(pl.col("kind") == "act")
    assert acts["action"].list.len().to_list() == [1] * len(acts)
    assert acts["reason"].null_count() == 0
    assert table.filter(pl.col("kind") == "prior now")["who"].to_list() == ["anna"]
    observed = table.filter(pl.col("kind") == "observe")
    assert observed["cost"].null_count() == 0
    assert observed["applied"].list.len().to_list() == [1] * len(observed)
