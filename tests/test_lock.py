"""The pinned versions: complete, exact, and the same wherever they stand."""

from __future__ import annotations

import itertools
import re
import tomllib
from importlib import metadata

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.sources import ROOT

ABSENT_FROM_CONDA = {"python", "pip"}
OF_CUDA = ("nvidia-", "cuda-", "triton")
CONDA_NAMES = {"pytorch-cpu": "torch"}


def lock() -> list[Requirement]:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def versions() -> dict[str, str]:
    return {canonicalize_name(r.name): next(iter(r.specifier)).version for r in lock()}


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]


def test_every_pin_is_exact_and_stands_once():
    names = [canonicalize_name(r.name) for r in lock()]
    assert len(names) == len(set(names))
    for requirement in lock():
        assert [s.operator for s in requirement.specifier] == ["=="], requirement
        assert "+" not in str(requirement.specifier), f"{requirement}: a local version exists on one machine only"


def test_the_lock_meets_the_projects_own_bounds():
    for text in [*project()["dependencies"], *itertools.chain(*project()["optional-dependencies"].values())]:
        requirement = Requirement(text)
        if requirement.name == project()["name"]:  # one extra that includes another
            assert requirement.extras <= set(project()["optional-dependencies"])
            continue
        operators = {s.operator for s in requirement.specifier}
        assert {">=", "<"} <= operators, f"{text} needs a lower and an upper bound"
        assert versions()[canonicalize_name(requirement.name)] in requirement.specifier, text


def test_what_is_installed_is_what_is_pinned():
    for requirement in lock():
        if requirement.marker is None or requirement.marker.evaluate():
            assert metadata.version(requirement.name) in requirement.specifier, requirement


def test_the_lock_lists_everything_that_its_packages_need():
    pinned = versions()
    for requirement in lock():
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        for text in metadata.requires(requirement.name) or []:
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                name = canonicalize_name(needed.name)
                # PyPI's torch for Linux brings CUDA packages, whose versions it chooses itself.
                if requirement.name == "torch" and name.startswith(OF_CUDA):
                    continue
                assert name in pinned, f"{requirement.name} needs {name}"
                assert needed.specifier.contains(pinned[name], prereleases=True), f"{requirement.name} needs {needed}"


@pytest.mark.parametrize("python", ["3.11.0", "3.12.0", "3.13.0"])
def test_every_pin_supports_the_python_versions_that_the_project_names(python):
    for requirement in lock():
        if requirement.marker is None or requirement.marker.evaluate():
            supported = metadata.metadata(requirement.name).get("Requires-Python")
            assert supported is None or Requirement(f"x{supported}").specifier.contains(python), requirement


def test_conda_gets_the_same_versions():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf8"))
    pinned = versions()
    found = [re.split("=+", line) for line in environment["dependencies"]]
    for name, *version in found:
        if name not in ABSENT_FROM_CONDA:
            assert version == [pinned[CONDA_NAMES.get(name, name)]], name
    assert {"pytorch-cpu", "numpy"} <= {name for name, *_ in found}


def test_binder_installs_the_package_and_opens_chapters_as_notebooks():
    script = ROOT / "postBuild"
    assert script.stat().st_mode & 0o111, "postBuild must be executable"
    text = script.read_text(encoding="utf8")
    assert "--constraint requirements.lock" in text
    assert "'.[book]'" in text
    assert "jupytext-config set-default-viewer markdown" in text
    assert not (ROOT / "binder").exists(), "a binder folder would hide environment.yml and postBuild"


def test_the_library_alone_does_not_bring_jupyter():
    names = {canonicalize_name(Requirement(text).name) for text in project()["dependencies"]}
    assert not {n for n in names if "jupyter" in n or n in {"ipython", "ipykernel", "nbformat", "myst-nb", "sphinx"}}
