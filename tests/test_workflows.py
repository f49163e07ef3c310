"""The workflows: what runs where, with which rights, and what is kept of a failure."""

from __future__ import annotations

import re
import tomllib
from functools import cache

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from tests.sources import ROOT

FOLDER = ROOT / ".github" / "workflows"
NAMES = sorted(path.name for path in FOLDER.iterdir())
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
MINORS = [f"3.{minor}" for minor in range(8, 14)]  # the newest that has everything in the lock
RIGHTS = {  # of each job; whatever is not here must not have any
    ("book.yml", "test"): {"contents": "read"},
    ("book.yml", "publish"): {"pages": "write", "id-token": "write"},
    ("weekly.yml", "links"): {"contents": "read"},
    ("weekly.yml", "newest"): {"contents": "read"},
}


def text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf8")


@cache
def workflow(name: str) -> dict:
    found = yaml.safe_load(text(name))
    found["on"] = found.pop(True)  # YAML 1.1 reads the word as a truth value
    return found


def jobs() -> list[tuple[str, str]]:
    return [(name, job) for name in NAMES for job in workflow(name)["jobs"]]


def job(name: str, which: str) -> dict:
    return workflow(name)["jobs"][which]


def step(name: str, which: str, action: str) -> dict:
    found = [one for one in job(name, which)["steps"] if one.get("uses", "").startswith(f"{action}@")]
    assert len(found) == 1, f"{name}, {which}: {len(found)} steps use {action}"
    return found[0]


def commands(name: str, which: str) -> str:
    return "\n".join(one["run"] for one in job(name, which)["steps"] if "run" in one)


def supported() -> list[str]:
    """Return the Pythons that pyproject.toml and the lock name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
    return [minor for minor in MINORS if f"{minor}.99" in SpecifierSet(project["requires-python"])]


@pytest.mark.parametrize("name", NAMES)
def test_every_action_is_pinned_to_a_commit_and_says_its_version(name):
    uses = re.findall(r"^\s*-?\s*uses:\s*(.+)$", text(name), re.MULTILINE)
    assert uses
    assert [line for line in uses if not PINNED.fullmatch(line.strip())] == []


def test_an_action_has_one_version_everywhere():
    found = {}
    for name in NAMES:
        for owner, commit in re.findall(r"uses: ([\w.-]+/[\w.-]+)[\w/-]*@(.+)$", text(name), re.MULTILINE):
            found.setdefault(owner, set()).add(commit)
    assert len(found) >= 5
    assert {action: commits for action, commits in found.items() if len(commits) > 1} == {}


def test_no_job_has_more_rights_than_it_needs():
    assert set(jobs()) == set(RIGHTS)
    for name in NAMES:
        assert workflow(name)["permissions"] == {}
    for (name, which), rights in RIGHTS.items():
        assert job(name, which)["permissions"] == rights
        for one in job(name, which)["steps"]:
            if one.get("uses", "").startswith("actions/checkout@"):
                assert one["with"]["persist-credentials"] is False
    assert "secrets." not in "".join(map(text, NAMES))
    assert "pull_request_target" not in "".join(map(text, NAMES)), "it would run a stranger's code with our rights"


@pytest.mark.parametrize("name", NAMES)
def test_no_command_holds_an_expression(name):
    """GitHub would put a branch's name or a title into the command before the shell reads it."""
    for which in workflow(name)["jobs"]:
        assert "${{" not in commands(name, which)


@pytest.mark.parametrize(("name", "which"), jobs())
def test_every_job_ends(name, which):
    assert 0 < job(name, which)["timeout-minutes"] <= 360


def test_the_matrix_holds_the_pythons_that_the_project_supports():
    assert supported() == ["3.11", "3.12", "3.13"]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf8")
    assert f"Python {supported()[0]} to {supported()[-1]}" in lock
    for name, which in (("book.yml", "test"), ("weekly.yml", "newest")):
        strategy = job(name, which)["strategy"]
        assert strategy["matrix"]["python"] == supported()
        assert strategy["fail-fast"] is False
        setup = step(name, which, "actions/setup-python")
        assert setup["with"]["python-version"] == "${{ matrix.python }}"


def test_changes_and_main_are_built_strictly_and_tested():
    on = workflow("book.yml")["on"]
    assert set(on) == {"push", "pull_request", "workflow_dispatch"}
    assert on["push"] == {"branches": ["main"]}
    assert "if" not in job("book.yml", "test")
    assert re.search(r"^make book\b", commands("book.yml", "test"), re.MULTILINE)
    assert re.search(r"^\.ci/run\b", commands("book.yml", "test"), re.MULTILINE)
    assert "jupyter-book build . -n -W" in (ROOT / "Makefile").read_text(encoding="utf8")
    restored = step("book.yml", "test", "actions/cache/restore")["with"]["path"]
    assert restored == "_build/training", "nothing else of an earlier build may come back"


def test_only_main_is_published_with_long_training_after_all_tests():
    publish, test = job("book.yml", "publish"), job("book.yml", "test")
    assert publish["needs"] == "test"
    assert [one["uses"].split("@")[0] for one in publish["steps"]] == ["actions/deploy-pages"]
    upload = step("book.yml", "test", "actions/upload-pages-artifact")
    assert upload["with"]["path"] == "_build/html"
    for condition in (publish["if"], upload["if"]):
        assert "github.ref == 'refs/heads/main' && github.event_name != 'pull_request'" in condition
    assert upload["if"].startswith("matrix.published && ")
    assert [one["python"] for one in test["strategy"]["matrix"]["include"] if one["published"]] == ["3.11"]
    training = test["env"]["MEMSTORE_TRAINING"]
    wanted = "matrix.published && github.ref == 'refs/heads/main' && (vars.MEMSTORE_TRAINING || 'medium') || 'small'"
    assert training == f"${{{{ {wanted} }}}}"
    assert test["timeout-minutes"] >= 180


def test_the_training_setting_is_one_that_there_is():
    from memstore_lib.language_models.settings import SETTINGS

    assert {"small", "medium", "large"} <= set(SETTINGS)


def test_what_decides_about_a_training_run_names_its_cache():
    key = step("book.yml", "test", "actions/cache/restore")["with"]["key"]
    for part in (
        "matrix.python",
        "env.MEMSTORE_TRAINING",
        "requirements.lock",
        "delta_rule.py",
        "language_models/*.py",
    ):
        assert part in key
    save = step("book.yml", "test", "actions/cache/save")
    assert save["if"].startswith("always() && "), "runs that are finished outlive a failure"
    assert "cache-primary-key" in save["with"]["key"]
    assert "github.run_id" in save["with"]["key"], "what is incomplete must not take the complete one's name"


@pytest.mark.parametrize(("name", "which"), [one for one in jobs() if one[1] != "publish"])
def test_reports_of_a_failure_are_kept_for_a_while(name, which):
    steps = job(name, which)["steps"]
    upload = step(name, which, "actions/upload-artifact")
    assert upload["if"] == "failure()"
    assert 1 <= upload["with"]["retention-days"] <= 30
    assert "${{ github.run_attempt }}" in upload["with"]["name"]
    kept = upload["with"]["path"].split()
    assert any(path.endswith("html/reports") for path in kept), "where the build says which cell failed"
    if which == "links":
        return
    assert "_build/reports" in kept
    assert job(name, which)["env"]["PYTEST_ADDOPTS"] == "--junitxml=_build/reports/junit.xml"
    logged = [one for one in steps if "| tee _build/reports/" in one.get("run", "")]
    assert len(logged) == 2
    assert all(one["shell"] == "bash" for one in logged), "only this form of bash sees a failure before a pipe"


def test_once_a_week_links_and_newest_versions():
    on = workflow("weekly.yml")["on"]
    assert set(on) == {"schedule", "workflow_dispatch"}
    assert [len(one["cron"].split()) for one in on["schedule"]] == [5]
    assert on["schedule"][0]["cron"].split()[2:4] == ["*", "*"]
    assert on["schedule"][0]["cron"].split()[4].isdigit(), "one day of the week"
    assert commands("weekly.yml", "links") == "make links"
    makefile = (ROOT / "Makefile").read_text(encoding="utf8")
    assert "build . --builder linkcheck" in makefile
    newest = commands("weekly.yml", "newest")
    assert "pip install --upgrade --upgrade-strategy eager --editable '.[book,test]'" in newest
    assert "requirements.lock" not in newest
    assert "jupyter-book build . -n -W" in newest
    assert "python -m pytest" in newest
    # GitHub sends a mail when a scheduled run fails. Nothing else speaks.
    assert not re.search(r"issues: write|gh issue|create-issue", text("weekly.yml"))
