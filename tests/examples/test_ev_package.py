"""The charging station, installed as a user would: every command knows it, and no file of tether does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "examples" / "ev_charging"

COMMANDS = (
    "train ev --methods acrl --lams 1 --bs 1 --seeds 1 --episodes 50 --passes 1 --out train",
    "limit ev --lams 1 --bs 1 --episodes 2 --processes 1 --policies train --out limit",
    "verify ev --claims p(1),immediate --rounds 1 --samples 64 --steps 0 --generations 2 --out verify",
    "attack ev --certificate lipschitz --lams 1 --bs 1 --episodes 100 --batch 100 --precision float32 --out attack",
    "reproduce ev --seeds 1 --methods prior --rules tight --modes offline --lams 1 --bs 1 --episodes 50"
    " --out reproduced",
    "report reproduced --no-figures",
)
"""With the constants: the structure is tested in test_ev_station.py, and takes longer to compile."""
RUN = """
import json, sys
from tether.cli.main import main
codes = {}
for line in json.loads(sys.argv[1]):
    sys.argv = ["tether", *line.split()]
    print("$", *sys.argv, flush=True)
    try:
        main()
    except SystemExit as end:
        codes[line] = end.code
import gymnasium
import tether.gym
env = gymnasium.make("tether/EV-v0", draws=3)
observation, _ = env.reset(seed=0)
*_, info = env.step(env.unwrapped.prior(observation))
print("cost", info["cost"])
print(json.dumps(codes))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the package in it, from a wheel that pip built; on the path of whoever runs there."""
    pytest.importorskip("hatchling", reason="hatchling is not installed; it is in the extra [dev]")
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--target",
        folder,
    ]
    command += ["--no-deps", "--no-index", "--no-build-isolation", PACKAGE]
    subprocess.run(command, check=True, timeout=120)
    return folder


def run(installed, folder, *arguments):
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "TETHER_DEBUG": "1", "TTY_INTERACTIVE": "0"}
    environment["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # it compiles much and plays little
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


@pytest.mark.slow
def test_every_command_and_gymnasium_know_an_installed_system(installed, tmp_path):
    done = run(installed, tmp_path, "-c", RUN, json.dumps(COMMANDS))
    assert done.returncode == 0, done.stdout + done.stderr
    *_, cost, codes = done.stdout.splitlines()
    assert set(json.loads(codes).values()) == {0}, done.stdout + done.stderr
    assert cost == "cost 1.0"
    share = json.loads((tmp_path / "limit" / "results.json").read_text(encoding="utf-8"))
    assert "acrl" in json.dumps(share)
    page = (tmp_path / "reproduced" / "report.html").read_text(encoding="utf-8")
    assert "EV charging" in page


def test_no_file_of_tether_names_it():
    for path in sorted((ROOT / "src").rglob("*.py")):
        assert "tether_ev" not in path.read_text(encoding="utf-8"), path
