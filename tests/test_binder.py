"""What Binder makes of this repository, and that the tests' JupyterLab is the one that it brings."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import lab
from tests.sources import ROOT
from tests.test_lock import versions

#: A line of repo2docker's lock: where conda finds a package, as name-version-build.
CONDA_PACKAGE = re.compile(r"^https://\S+/(.+)-([^-/]+)-[^-/]+\.(?:conda|tar\.bz2)", re.MULTILINE)
OF_BOTH = {"jupytext"}  # its part for JupyterLab has to lie in the environment that JupyterLab is in


def pins() -> dict[str, str]:
    lines = lab.LOCK.read_text(encoding="utf8").splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert all([s.operator for s in r.specifier] == ["=="] for r in requirements)
    return {canonicalize_name(r.name): next(iter(r.specifier)).version for r in requirements}


@pytest.fixture(scope="module")
def binders(binder_lab) -> dict[str, str]:
    """The versions that repo2docker puts into an image with the Python of ``environment.yml``."""
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf8"))
    python = next(line.removeprefix("python=") for line in environment["dependencies"] if line.startswith("python="))
    code = "import repo2docker, pathlib; print(pathlib.Path(repo2docker.__file__).parent)"
    package = subprocess.run([binder_lab, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    with open(f"{package}/buildpacks/conda/environment.py-{python}-linux-64.lock", encoding="utf8") as lock:
        found = dict(match.groups() for match in CONDA_PACKAGE.finditer(lock.read()))
    assert len(found) > 50
    # conda parts nbconvert's code from what it needs to print.
    return {canonicalize_name(name.replace("nbconvert-core", "nbconvert")): found[name] for name in found}


@pytest.mark.site
def test_pins_are_those_of_repo2docker(binders):
    ours = pins()
    assert {name: ours[name] for name in ours.keys() & binders.keys() - OF_BOTH} == {
        name: binders[name] for name in ours.keys() & binders.keys() - OF_BOTH
    }
    assert {"jupyterlab", "jupyter-server", "notebook", "ipywidgets"} <= ours.keys() & binders.keys()


def test_the_two_locks_do_not_contradict_each_other():
    ours, books = pins(), versions()
    assert ours.keys() & books.keys() == OF_BOTH
    assert {name: ours[name] for name in OF_BOTH} == {name: books[name] for name in OF_BOTH}


@pytest.mark.site
def test_nothing_is_missing_from_the_environment(binder_lab):
    """On Binder, too, the book's versions stand beside JupyterLab's, and each must do for the other."""
    done = subprocess.run([binder_lab, "-c", NEEDS], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == ""


#: Prints what a distribution of the environment needs and does not find; torch's own CUDA packages aside.
NEEDS = """
from importlib import metadata
from packaging.requirements import Requirement
for distribution in metadata.distributions():
    if distribution.name == "torch":
        continue
    for text in distribution.requires or []:
        needed = Requirement(text)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            try:
                met = needed.specifier.contains(metadata.version(needed.name), prereleases=True)
            except metadata.PackageNotFoundError:
                met = False
            if not met:
                print(distribution.name, "needs", text)
"""


@pytest.mark.site
def test_repo2docker_uses_environment_postbuild_and_start(binder_lab):
    command = [binder_lab, "-m", "repo2docker", "--no-build", "--debug", str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    dockerfile = done.stdout + done.stderr
    assert done.returncode == 0, dockerfile
    assert "Building conda environment for python=3.12" in dockerfile
    assert re.search(r"^COPY .*src/environment\.yml \$\{REPO_DIR\}/environment\.yml$", dockerfile, re.MULTILINE)
    assert re.search(r'env update -p \S+ --file "environment\.yml"', dockerfile)
    assert re.search(r"^RUN \./postBuild$", dockerfile, re.MULTILINE)
    assert re.search(r'^ENV R2D_ENTRYPOINT="?\S*/start"?$', dockerfile, re.MULTILINE)


def test_start_runs_what_it_is_given_on_one_processor(tmp_path):
    code = "import os, sys; print(os.environ['OMP_NUM_THREADS'], os.environ['MEMSTORE_WORKERS'], sys.argv[1])"
    command = [ROOT / "start", sys.executable, "-c", code, "an argument"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout == "1 1 an argument\n"
