"""Who may do what: tokens, roles, and a file that changes while it is used."""

from __future__ import annotations

import pytest

from tether.serve import tokens
from tether.serve.limits import Rate, retry_after
from tether.serve.tokens import Everybody, Role, Tokens, digest, new_token, read_tokens


@pytest.fixture
def made(tmp_path):
    file = tmp_path / "tokens.toml"
    secret, entry = new_token("plc-7", Role.CONTROL, ("hall",))
    other, another = new_token("ana", Role.OPERATOR)
    file.write_text(entry + another)
    return file, secret, other


def test_the_file_holds_no_secret_and_lets_its_holders_in(made):
    file, secret, other = made
    assert secret not in file.read_text()
    assert len(secret) >= 43
    known = Tokens(file)
    assert known.holder(f"Bearer {secret}").name == "plc-7"
    assert known.holder(f"bearer {other}").role is Role.OPERATOR
    for wrong in (
        None,
        "",
        secret,
        f"Basic {secret}",
        "Bearer",
        "Bearer x",
        f"Bearer {secret}x",
        "Bearer é\xff",
    ):
        assert known.holder(wrong) is None


def test_a_role_is_for_its_plants_only(made):
    file, secret, other = made
    known = Tokens(file)
    control, operator = known.holder(f"Bearer {secret}"), known.holder(f"Bearer {other}")
    assert control.may(frozenset({Role.CONTROL}), "hall")
    assert not control.may(frozenset({Role.CONTROL}), "kiln")
    assert not control.may(frozenset({Role.CONTROL}), None)  # all of them
    assert not control.may(frozenset({Role.OPERATOR}), "hall")
    assert operator.may(frozenset({Role.OPERATOR}), None)
    assert operator.may(frozenset({Role.OPERATOR}), "kiln")


def test_every_entry_is_compared_in_constant_time_wherever_the_token_is_found(made, monkeypatch):
    file, secret, _ = made
    known, compared = Tokens(file), []

    def compare(one, other):
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(tokens.hmac, "compare_digest", compare)
    for sent in (secret, "unknown"):
        compared.clear()
        known.holder(f"Bearer {sent}")
        assert len(compared) == 2
        assert all(one == digest(sent).encode() for one, _ in compared)


def test_a_changed_file_is_read_again_and_a_bad_one_changes_nothing(made, caplog):
    file, secret, _ = made
    now = [0.0]
    known = Tokens(file, clock=lambda: now[0])
    fresh, entry = new_token("eva", Role.READER)
    file.write_text(entry)
    assert known.holder(f"Bearer {fresh}") is None  # it is not looked at in every request
    now[0] = 1.5
    assert known.holder(f"Bearer {fresh}").name == "eva"
    assert known.holder(f"Bearer {secret}") is None  # revoked
    file.write_text("[[token]]\nname = 3")
    now[0] = 3.0
    assert known.holder(f"Bearer {fresh}").name == "eva"
    assert known.stale
    assert "stay as they were" in caplog.text
    file.unlink()
    now[0] = 4.5
    assert known.holder(f"Bearer {fresh}").name == "eva"
    assert known.stale
    file.write_text(entry + "\n")
    now[0] = 6.0
    assert known.holder(f"Bearer {fresh}").name == "eva"
    assert not known.stale


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no token"),
        ("[[token]]\n", "missing required field `name`"),
        ('[[token]]\nname = "a"\nrole = "king"\nsha256 = "x"', "king"),
        ('[[token]]\nname = "a"\nrole = "control"\nsha256 = "x"', "64 lower-case hexadecimal"),
        ('[[token]]\nname = "a b"\nrole = "control"\nsha256 = "x"', "name must be"),
        ('[[token]]\nname = "a"\nrole = "control"\nsha256 = "x"\nplant = "p"', "unknown field `plant`"),
        ("[[token", "tokens.toml"),
    ],
)
def test_a_bad_file_is_refused_and_named(tmp_path, text, message):
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        read_tokens(file)
    assert str(file) in str(caught.value) or "name must be" in str(caught.value)


def test_two_holders_may_not_have_one_name_or_one_token(tmp_path):
    file = tmp_path / "tokens.toml"
    _, entry = new_token("a", Role.READER)
    for other, what in ((new_token("a", Role.READER)[1], "name"), (entry.replace('"a"', '"b"'), "sha256")):
        file.write_text(entry + other)
        with pytest.raises(ValueError, match=f"the same {what}"):
            read_tokens(file)


def test_without_tokens_everybody_may_do_everything():
    holder = Everybody().holder(None)
    assert holder.may(frozenset({Role.CONTROL}), "any")
    assert holder.may(frozenset({Role.OPERATOR}), None)


def test_a_rate_lets_so_many_through_for_each_caller():
    now = [0.0]
    rate = Rate(10.0, clock=lambda: now[0])
    assert sum(rate.wait("a") == 0.0 for _ in range(30)) == 10
    assert rate.wait("b") == 0.0
    wait = rate.wait("a")
    now[0] += wait
    assert rate.wait("a") == 0.0
    now[0] += 100.0  # a bucket never holds more than a second's worth
    assert sum(rate.wait("a") == 0.0 for _ in range(30)) == 10
    now[0] += 100.0
    assert rate.wait("a", 1000.0) == 0.0  # a large batch takes all there is
    assert rate.wait("a") > 0.0
    assert retry_after(0.01) == "1"
    assert retry_after(1.5) == "2"
