"""Builds the package as it would be published, and installs it as a user would: `make package`.

The sdist is built from the source tree, the wheel from the sdist alone. Then, in virtual environments of their own:

- core: nothing but NumPy comes along; `import tether` and the README's guard loop run; size and time are printed;
- [cli], which is what `make reproduce` needs beside [limit]: `tether --help`, the README's guard from a model and a
  small training run;
- [all]: every name of `tether` loads; then the packages in `examples/`, if any: each is installed beside it, and the
  systems that it names are trained on.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
NUMPY_ONLY = {"numpy", "tether-rl"}


def say(words: str) -> None:
    """At once, also where the output goes to a file."""
    print(f"package: {words}", flush=True)


class Environment:
    """A virtual environment with nothing in it but pip."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        self.bin = folder / ("Scripts" if os.name == "nt" else "bin")

    def install(self, *what: str) -> float:
        """Install with the tested versions; seconds that it took."""
        begin = time.perf_counter()
        self.run("python", "-m", "pip", "install", "--quiet", "-c", str(CONSTRAINTS), *what)
        return time.perf_counter() - begin

    def run(self, program: str, *arguments: str, cwd: Path | None = None) -> str:
        """What the program prints. The source tree is not on its path: what runs is what was installed."""
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [str(self.bin / program), *arguments],
            cwd=cwd or self.folder,
            env=clean,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            line = " ".join([program, *arguments])
            sys.exit(f"package: `{line}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def packages(self) -> set[str]:
        """What is installed, without pip and what the venv itself brings."""
        listed = self.run("python", "-m", "pip", "list", "--format=freeze").split()
        return {line.split("==")[0].lower() for line in listed} - {"pip", "setuptools"}

    def megabytes(self) -> float:
        """Of all packages; pip itself is left out."""
        site = next(self.folder.rglob("site-packages"))
        files = (path for path in site.rglob("*") if path.is_file())
        own = (
            path for path in files if not path.relative_to(site).parts[0].startswith(("pip", "setuptools"))
        )
        return sum(path.stat().st_size for path in own) / 1e6


def build(place: Path) -> Path:
    """The wheel, built from the sdist, which is built from the source tree."""
    builder = Environment(place / "builder")
    builder.install("hatchling")
    builder.run("python", "-m", "hatchling", "build", "-t", "sdist", "-d", str(place / "dist"), cwd=ROOT)
    (sdist,) = (place / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(place / "unpacked", filter="data")
    (source,) = (place / "unpacked").iterdir()
    builder.run("python", "-m", "hatchling", "build", "-t", "wheel", "-d", str(place / "dist"), cwd=source)
    (wheel,) = (place / "dist").glob("*.whl")
    sizes = ", ".join(f"{file.suffix[1:]} {file.stat().st_size / 1e3:.0f} kB" for file in (sdist, wheel))
    say(f"built from the sdist: {sizes}")
    return wheel


def examples() -> tuple[str, str]:
    """The README's guard from a model, and its guard loop that needs NumPy only."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    if len(blocks) < 2 or "tether.Model" not in blocks[0] or "guard.act" not in blocks[1]:
        sys.exit("package: the README must begin with a guard from a model and go on with the guard loop")
    return blocks[0], blocks[1]


def check_core(wheel: Path, place: Path) -> None:
    """NumPy only, and the guard runs."""
    core = Environment(place / "core")
    seconds = core.install(str(wheel))
    if core.packages() != NUMPY_ONLY:
        sys.exit(f"package: the core brings {sorted(core.packages())}, expected {sorted(NUMPY_ONLY)}")
    begin = time.perf_counter()
    core.run("python", "-c", examples()[1])
    ran = time.perf_counter() - begin
    say(
        f"core installed in {seconds:.1f} s, {core.megabytes():.0f} MB ({', '.join(sorted(NUMPY_ONLY))}); "
        f"the README's guard loop runs in {ran:.2f} s"
    )
    done = subprocess.run([core.bin / "tether", "train"], capture_output=True, text=True, check=False)
    if (
        done.returncode != 2
        or done.stderr != "tether train needs tether-rl[cli]: pip install 'tether-rl[cli]'\n"
    ):
        sys.exit(f"package: `tether train` without extras: {done.returncode}, {done.stderr!r}")


def check_all(wheel: Path, place: Path) -> None:
    """[cli] is enough for the command line, [all] for every name; systems of other packages are found."""
    everything = Environment(place / "all")
    # Thousands of modules that nobody will import need not be compiled.
    seconds = everything.install("--no-compile", f"{wheel}[cli]")
    say(f"[cli] installed in {seconds:.1f} s, {everything.megabytes():.0f} MB")
    everything.run("tether", "--help")
    everything.run("tether", "reproduce", "--help")
    everything.run("python", "-c", examples()[0])
    train(everything, "carbon")
    seconds = everything.install("--no-compile", f"{wheel}[all]")
    say(f"[all] beside it in {seconds:.1f} s, {everything.megabytes():.0f} MB")
    everything.run("python", "-c", "import tether; print([getattr(tether, name) for name in dir(tether)])")
    for project in sorted(ROOT.glob("examples/*/pyproject.toml")):
        everything.install(str(project.parent))
        names = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["entry-points"][
            "tether.systems"
        ]
        for name in names:
            train(everything, name)


def train(environment: Environment, system: str) -> None:
    """A training of a few seconds."""
    small = {
        "methods": "acrl",
        "lams": "2",
        "bs": "2",
        "seeds": "1",
        "episodes": "20",
        "passes": "1",
        "width": "4",
    }
    options = [word for name, value in small.items() for word in (f"--{name}", value)]
    out = environment.folder / "out" / system
    environment.run("tether", "train", system, *options, "--out", str(out))
    say(f"tether train {system} runs")


def main() -> None:
    """Build, install, run."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="tether-package-") as folder:
        place = Path(folder)
        wheel = build(place)
        check_core(wheel, place)
        check_all(wheel, place)
    say(f"all is well, {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
