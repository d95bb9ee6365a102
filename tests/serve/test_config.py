"""What `tether serve` is told: good files, and one line for each mistake."""

from __future__ import annotations

import json

import numpy as np
import pytest

from commands import run
from serving import certificate
from tether.learn.policy import NetworkPolicy
from tether.serve.config import load, prior_of, require_loopback

OPEN = "[access]\nopen = true\n"


def written(folder, text):
    file = folder / "guard.toml"
    file.write_text(text)
    return file


def test_a_system_brings_its_bounds_its_prior_and_its_certificate(tmp_path):
    text = '[plants.grid]\nsystem = "carbon"\nlam = 2\nb = 2.0\n[plants.hall]\nsystem = "cooling"\nkind = "lipschitz"\n'
    text += 'lam = 1.0\nb = 0.0\nhorizon = 48\nhigh = [4.0, 5.0]\nmonitor = true\npolicies = { prior = "thermostat" }\n'
    config = load(written(tmp_path, OPEN + text + "[limits]\nopen_episodes = 7\n"))
    grid, hall = config.plants["grid"], config.plants["hall"]
    assert (grid.low, grid.high, grid.norm, grid.open_episodes) == (0.0, np.inf, "l2", 7)
    assert grid.certificate.to_dict()["kind"] == "structured"
    assert grid.certificate.contract.b == 2.0
    assert grid.prior([3.0, 1.0, 0.0, 1.0]) == pytest.approx(5.0)
    assert hall.certificate.to_dict()["kind"] == "lipschitz"
    assert hall.certificate.contract.horizon == 48
    assert hall.monitor is not None
    assert (hall.high, hall.norm, hall.policy("prior")) == ([4.0, 5.0], "linf", "thermostat")
    assert config.journal is None
    assert config.tokens is None


def test_a_saved_certificate_comes_with_a_prior_of_any_kind(tmp_path, monkeypatch):
    (tmp_path / "boiler.json").write_text(json.dumps(certificate().to_dict()))
    policy = NetworkPolicy.fresh(np.zeros(2), np.ones(2), low=0.0, high=4.0, center=2.0, width=4, seed=0)
    policy.save(tmp_path / "prior.npz")
    (tmp_path / "my_plant.py").write_text("def trusted(x):\n    return 1.0\nnumber = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    head = '[plants.boiler]\ncertificate = "boiler.json"\nlow = -10.0\n'
    for prior, given in (
        ("client", None),
        ("prior.npz", float(policy(np.zeros(2)))),
        ("my_plant:trusted", 1.0),
    ):
        plant = load(written(tmp_path, f'{OPEN}{head}prior = "{prior}"\n')).plants["boiler"]
        assert plant.certificate.to_dict() == certificate().to_dict()
        assert plant.low == -10.0
        assert (None if plant.prior is None else float(plant.prior([0.0, 0.0]))) == given


def test_paths_start_at_the_folder_of_the_file(tmp_path):
    text = '[journal]\npath = "j"\ndurability = "power"\n[access]\ntokens = "t.toml"\n'
    config = load(written(tmp_path, text + '[plants.grid]\nsystem = "carbon"\nlam = 2\nb = 2\n'))
    assert (config.journal.path, config.journal.durability) == (str(tmp_path / "j"), "power")
    assert config.tokens == tmp_path / "t.toml"
    require_loopback(config, "0.0.0.0")


PLANT = '[plants.p]\nsystem = "carbon"\nlam = 2.0\nb = 2.0\n'
BAD = {
    "no plant": (OPEN + "[plants]\n", "there is no plant"),
    "no table of plants": (OPEN, "missing required field `plants`"),
    "no access": (PLANT, "tokens = "),
    "both kinds of access": ('[access]\nopen = true\ntokens = "t"\n' + PLANT, "either tokens"),
    "a name that is not known": (OPEN + "[journals]\n" + PLANT, "unknown field `journals`"),
    "another type": (OPEN + PLANT.replace("2.0", '"two"'), "Expected `float.*plants"),
    "a system that is not there": (OPEN + PLANT.replace("carbon", "moon"), r"\[plants.p\] the system must be one of"),
    "no lam": (OPEN + PLANT.replace("lam = 2.0\n", ""), "needs lam beside system"),
    "a lam that is none": (OPEN + PLANT.replace("lam = 2.0", "lam = nan"), "lam must be finite"),
    "system and certificate": (OPEN + PLANT + 'certificate = "c"', "either system"),
    "no certificate at all": (OPEN + "[plants.p]\nlam = 1.0\n", "either system"),
    "a certificate that is not there": (OPEN + '[plants.p]\ncertificate = "c"\nprior = "client"', "not a certificate"),
    "a certificate without a prior": (OPEN + '[plants.p]\ncertificate = "c"', "needs prior"),
    "lam beside a certificate": (OPEN + '[plants.p]\ncertificate = "c"\nlam = 1.0', "is in the certificate"),
    "monitor beside a certificate": (OPEN + '[plants.p]\ncertificate = "c"\nmonitor = true', "for a system"),
    "a prior that is nothing": (OPEN + PLANT + 'prior = "nothing"', "module:function"),
    "a prior that is not there": (OPEN + PLANT + 'prior = "json:nothing"', "no prior at 'json:nothing'"),
    "a prior that is no function": (OPEN + PLANT + 'prior = "sys:path"', "must be callable"),
    "a policy that is not there": (OPEN + PLANT + 'prior = "x.npz"', "not found"),
    "bounds the wrong way round": (OPEN + PLANT + "low = 3.0\nhigh = 1.0", "low must not exceed high"),
    "a plant with a strange name": (OPEN + PLANT.replace("plants.p", 'plants."a/b"'), "must be named"),
    "a limit of nothing": (OPEN + PLANT + "[limits]\nbatch = 0", "batch must be at least 1"),
    "no rate": (OPEN + PLANT + "[limits]\nrequests_per_second = 0.0", "must be greater than 0"),
    "a durability that is none": (OPEN + '[journal]\npath = "j"\ndurability = "forever"\n' + PLANT, "forever"),
    "segments of nothing": (OPEN + '[journal]\npath = "j"\nsegment_megabytes = 0.0\n' + PLANT, "greater than 0"),
    "no TOML": ("[[", "guard.toml"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", BAD)
def test_a_mistake_is_one_line_and_exit_code_2(mistake, tmp_path, monkeypatch, capsys):
    text, message = BAD[mistake]
    file = written(tmp_path, text)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load(file)
    code, _, error = run(monkeypatch, capsys, "serve", "--check", file)
    assert code == 2
    assert len(error.strip().splitlines()) == 1
    assert "guard.toml" in error


def test_a_policy_that_needs_the_guards_memory_is_no_prior(tmp_path):
    policy = NetworkPolicy.fresh(
        np.zeros(2), np.ones(2), low=0.0, high=4.0, center=2.0, width=4, seed=0, memory=2
    )
    policy.save(tmp_path / "p.npz")
    with pytest.raises(ValueError, match="a prior sees the observation only"):
        prior_of("p.npz", tmp_path)


def test_the_command_checks_the_tokens_and_who_may_come_from_where(tmp_path, monkeypatch, capsys):
    text = '[access]\ntokens = "t.toml"\n' + PLANT
    file = written(tmp_path, text)
    assert run(monkeypatch, capsys, "serve", "--check", file)[0] == 2
    tokens = tmp_path / "t.toml"
    assert run(monkeypatch, capsys, "token", "plc", "--plants", "q", "--file", tokens)[0] == 0
    code, _, error = run(monkeypatch, capsys, "serve", "--check", file)
    assert code == 2
    assert "plc is for 'q', which is no plant here" in error
    tokens.unlink()
    secret = tmp_path / "ana.token"
    made = ("token", "ana", "--role", "operator", "--file", tokens, "--out", secret)
    assert run(monkeypatch, capsys, *made)[0] == 0
    assert secret.stat().st_mode & 0o777 == 0o600
    assert len(secret.read_text().strip()) == 43
    assert run(monkeypatch, capsys, *made)[0] == 2  # a secret is never overwritten
    code, out, _ = run(monkeypatch, capsys, "serve", "--check", file)
    assert code == 0
    assert "is good: p; 1 tokens" in out
    assert run(monkeypatch, capsys, "token", "x", "--role", "king")[0] == 2
    code, out, _ = run(monkeypatch, capsys, "token", "x", "--role", "reader")
    assert 'role = "reader"' in out
    file.write_text(OPEN + PLANT)
    code, _, error = run(monkeypatch, capsys, "serve", file, "--host", "0.0.0.0")
    assert code == 2
    assert "for this machine only" in error
    assert run(monkeypatch, capsys, "serve", file, "--tls-cert", "x.pem")[0] == 2
    assert run(monkeypatch, capsys, "serve", file, "--tls-cert", "x.pem", "--tls-key", "y.pem")[0] == 2
