"""Where a copy of the book says that it lies: web addresses of remotes, branches, the published site."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from memstore_repository import (
    Repository,
    from_actions,
    from_git,
    locate,
    published_at,
    web_address,
)
from sphinx.errors import ConfigError

DEFAULT = Repository("https://github.com/someone/book", "main")
SECRET = "ghp_0123456789"

REMOTES = {
    "https://github.com/owner/name": "https://github.com/owner/name",
    "https://github.com/owner/name.git": "https://github.com/owner/name",
    "https://github.com/owner/name.git/": "https://github.com/owner/name",
    "HTTPS://GitHub.com/Owner/Name.git": "https://github.com/Owner/Name",
    f"https://{SECRET}@github.com/owner/name.git": "https://github.com/owner/name",
    f"https://user:{SECRET}@github.com/owner/name": "https://github.com/owner/name",
    f"https://oauth2:{SECRET}@gitlab.example.org/group/sub/name.git": "https://gitlab.example.org/group/sub/name",
    "git@github.com:owner/name.git": "https://github.com/owner/name",
    "github.com:owner/name": "https://github.com/owner/name",
    "git@github.com:/owner/name.git": "https://github.com/owner/name",
    "ssh://git@github.com/owner/name.git": "https://github.com/owner/name",
    "ssh://git@ssh.github.com:443/owner/name.git": "https://github.com/owner/name",
    "ssh://git@git.example.org:2222/owner/name": "https://git.example.org/owner/name",
    "git+ssh://git@github.com/owner/name.git": "https://github.com/owner/name",
    "git://github.com/owner/name.git": "https://github.com/owner/name",
    "https://github.example.org:8443/owner/name.git": "https://github.example.org:8443/owner/name",
    "http://git.example.org/owner/name.git": "http://git.example.org/owner/name",
    "git@gitlab.com:group/sub/name.git": "https://gitlab.com/group/sub/name",
    "https://github.com/owner/owner.github.io.git": "https://github.com/owner/owner.github.io",
    "git@codeberg.org:owner/name_1.x~y.git": "https://codeberg.org/owner/name_1.x~y",
}
NO_PAGE = [
    "",
    "/srv/git/name.git",
    "../name",
    "./name.bundle",
    "name.bundle",
    "file:///srv/git/name.git",
    "C:/Users/me/name",
    r"C:\Users\me\name",
    "work:owner/name.git",  # a name from ~/.ssh/config
    "ssh://forge/owner/name.git",
    "https://github.com",
    "https://github.com/name.git",
    "git@github.com:name.git",
    "https://github.com/owner/na me",
    "https://github.com/owner/<script>",
    'https://github.com/owner/"onload=alert(1)',
    "https://github.com/../name",
    "https://github.com/owner/name?token=x",
    "https://github.com/owner/name#x",
    "https://github.com:port/owner/name",
    "https://[::1/owner/name",
    "https://user@/owner/name",
    "https://-.-/owner/name",
    "ftp://example.org/owner/name",
    "ext::sh -c echo% owner/name",
    "javascript://example.org/owner/name",
]


@pytest.mark.parametrize(("remote", "page"), REMOTES.items(), ids=range(len(REMOTES)))
def test_a_remote_has_a_page(remote, page):
    found = web_address(remote)
    assert found == page
    assert "@" not in found
    assert SECRET not in found


@pytest.mark.parametrize("remote", NO_PAGE)
def test_what_has_no_page_on_the_web(remote):
    assert web_address(remote) is None


# --- GitHub Actions -------------------------------------------------------------------------------

ACTIONS = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "owner/name"}


@pytest.mark.parametrize(
    ("more", "branch"),
    [
        ({"GITHUB_REF_NAME": "main", "GITHUB_REF_TYPE": "branch"}, "main"),
        ({"GITHUB_REF_NAME": "try/it.1", "GITHUB_REF_TYPE": "branch"}, "try/it.1"),
        ({"GITHUB_REF_NAME": "v1.0", "GITHUB_REF_TYPE": "tag"}, None),
        ({"GITHUB_REF_NAME": "7/merge", "GITHUB_REF_TYPE": "branch", "GITHUB_BASE_REF": "trunk"}, "trunk"),
        ({"GITHUB_REF_NAME": "main", "GITHUB_BASE_REF": ""}, "main"),
        ({"GITHUB_REF_NAME": 'a"b'}, None),
        ({}, None),
    ],
)
def test_actions_says_repository_and_branch(more, branch):
    assert from_actions(ACTIONS | more) == ("https://github.com/owner/name", branch)


def test_another_server():
    server = {"GITHUB_SERVER_URL": "https://github.example.org/", "GITHUB_REPOSITORY": "owner/name"}
    assert from_actions(server)[0] == "https://github.example.org/owner/name"
    assert from_actions({"GITHUB_REPOSITORY": "owner/name"})[0] == "https://github.com/owner/name"


def test_outside_actions_the_environment_says_nothing():
    assert from_actions({}) == (None, None)
    assert from_actions({"GITHUB_REPOSITORY": "", "GITHUB_REF_NAME": "main"}) == (None, None)


@pytest.mark.parametrize(
    "wrong",
    [{"GITHUB_REPOSITORY": "name"}, {"GITHUB_REPOSITORY": "a/b/c"}, {"GITHUB_REPOSITORY": "a/<b>"},
     {"GITHUB_SERVER_URL": "github.com"}, {"GITHUB_SERVER_URL": f"https://{SECRET}:x@"}],
)  # fmt: skip
def test_variables_that_make_no_address_are_named(wrong):
    with pytest.raises(ConfigError, match="GITHUB_SERVER_URL/GITHUB_REPOSITORY must be an address") as refused:
        from_actions(ACTIONS | wrong)
    assert SECRET not in str(refused.value)


# --- git ------------------------------------------------------------------------------------------


@pytest.fixture
def git(tmp_path, monkeypatch):
    """A folder, and a way to run git in it."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "a copy of 本"
    folder.mkdir()

    def run(*arguments, at=folder):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=trunk")
        subprocess.run(["git", *identity, *arguments], cwd=at, check=True, capture_output=True)

    run.folder = folder
    return run


def commit(git) -> None:
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")


def track(git, branch: str) -> None:
    """What `git push --set-upstream origin` leaves behind."""
    git("update-ref", f"refs/remotes/origin/{branch}", "HEAD")
    git("branch", "-q", f"--set-upstream-to=origin/{branch}")


def test_origin_and_the_branch_that_it_has(git):
    commit(git)
    git("remote", "add", "origin", f"https://me:{SECRET}@github.com/owner/name.git")
    assert from_git(git.folder) == ("https://github.com/owner/name", None), "nothing was pushed"
    track(git, "trunk")
    assert from_git(git.folder) == ("https://github.com/owner/name", "trunk")
    git("checkout", "-q", "-b", "mine")
    assert from_git(git.folder)[1] is None, "origin does not have this branch"
    git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    assert from_git(git.folder)[1] == "trunk", "its default branch instead"
    git("update-ref", "refs/remotes/origin/theirs/x", "HEAD")
    git("branch", "-q", "--set-upstream-to=origin/theirs/x")
    assert from_git(git.folder)[1] == "theirs/x"
    git("checkout", "-q", "--detach")
    assert from_git(git.folder)[1] == "trunk"


def test_a_branch_of_another_remote_does_not_count(git):
    commit(git)
    git("remote", "add", "origin", "git@github.com:owner/name.git")
    git("remote", "add", "upstream", "git@github.com:first/name.git")
    git("update-ref", "refs/remotes/upstream/main", "HEAD")
    git("branch", "-q", "--set-upstream-to=upstream/main")
    assert from_git(git.folder) == ("https://github.com/owner/name", None)


def test_a_short_name_for_a_host_is_written_out(git):
    commit(git)
    git("config", f"url.https://{SECRET}@github.com/.insteadOf", "gh:")
    git("remote", "add", "origin", "gh:owner/name")
    assert from_git(git.folder)[0] == "https://github.com/owner/name"


@pytest.mark.parametrize("remote", ["/srv/name.git", "../name.bundle", "file:///srv/name"])
def test_a_remote_without_a_page_does_not_count(git, remote):
    commit(git)
    git("remote", "add", "origin", remote)
    assert from_git(git.folder) == (None, None)


def test_without_origin_or_without_a_repository(git):
    assert from_git(git.folder) == (None, None)
    commit(git)
    assert from_git(git.folder) == (None, None)
    git("remote", "add", "upstream", "git@github.com:first/name.git")
    assert from_git(git.folder) == (None, None)


def test_a_repository_around_the_book_does_not_count(git):
    commit(git)
    git("remote", "add", "origin", "git@github.com:me/my-home.git")
    (git.folder / "book").mkdir()
    assert from_git(git.folder / "book") == (None, None)


def test_a_worktree_counts_and_a_hook_does_not_disturb(git, monkeypatch, tmp_path):
    commit(git)
    git("remote", "add", "origin", "git@github.com:owner/name.git")
    git("worktree", "add", "-q", str(tmp_path / "tree"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert from_git(tmp_path / "tree")[0] == "https://github.com/owner/name"


def test_without_git(git, monkeypatch):
    commit(git)
    git("remote", "add", "origin", "git@github.com:owner/name.git")
    monkeypatch.setenv("PATH", "")
    assert from_git(git.folder) == (None, None)


def test_environment_before_git_before_the_default(git):
    assert locate(git.folder, DEFAULT, {}) == DEFAULT
    commit(git)
    git("remote", "add", "origin", "git@gitlab.com:me/copy.git")
    assert locate(git.folder, DEFAULT, {}) == Repository("https://gitlab.com/me/copy", "main")
    track(git, "trunk")
    assert locate(git.folder, DEFAULT, {}) == Repository("https://gitlab.com/me/copy", "trunk")
    found = locate(git.folder, DEFAULT, ACTIONS | {"GITHUB_REF_NAME": "next"})
    assert found == Repository("https://github.com/owner/name", "next")


# --- the published site ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "forge", "site"),
    [
        ("https://github.com/Owner/Name", "github", "https://owner.github.io/Name/"),
        ("https://github.com/Owner/owner.github.io", "github", "https://owner.github.io/"),
        ("https://github.example.org/owner/name", "github", ""),
        ("https://gitlab.com/group/sub/name", "gitlab", ""),
        ("https://bitbucket.org/owner/name", "bitbucket", ""),
        ("https://codeberg.org/owner/name", "", ""),
        ("https://example.org/github/name", "", ""),
    ],
)
def test_forge_and_site_of_a_repository(page, forge, site):
    assert (Repository(page, "main").forge, Repository(page, "main").site) == (forge, site)


def test_a_given_address_of_the_site_comes_first():
    assert published_at(DEFAULT, "", {}) == "https://someone.github.io/book/"
    assert published_at(DEFAULT, "https://example.org/b", {}) == "https://example.org/b/"
    given = {"MEMSTORE_SITE_URL": " https://book.example.org "}
    assert published_at(DEFAULT, "https://example.org/b", given) == "https://book.example.org/"
    assert published_at(DEFAULT, "", {"MEMSTORE_SITE_URL": ""}) == "https://someone.github.io/book/"
    assert published_at(Repository("https://codeberg.org/owner/name", "main"), "", {}) == ""


@pytest.mark.parametrize(
    "wrong", ["book.example.org", "ftp://example.org/", "https:///book", "https://e.org/?a=b", "https://[::1/", "/book"]
)
def test_what_is_no_address_of_a_site_is_refused(wrong):
    with pytest.raises(ConfigError, match="MEMSTORE_SITE_URL must be an address") as refused:
        published_at(DEFAULT, "", {"MEMSTORE_SITE_URL": wrong})
    assert wrong in str(refused.value)
    with pytest.raises(ConfigError, match="html: baseurl must be an address"):
        published_at(DEFAULT, wrong, {})


def test_a_password_in_the_address_of_the_site_is_refused_and_not_repeated():
    with pytest.raises(ConfigError, match="got one with a user name or a password") as refused:
        published_at(DEFAULT, "", {"MEMSTORE_SITE_URL": f"https://me:{SECRET}@example.org/"})
    assert SECRET not in str(refused.value)
