"""Where the repository of this copy lies, so that a fork's buttons lead to the fork without an edit.

The first that is known counts: GitHub Actions' environment, the git remote ``origin``, ``repository`` in
``_config.yml``. The address at which the site will be published follows from it, or is given by ``MEMSTORE_SITE_URL``.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ConfigError
from sphinx.transforms.post_transforms import SphinxPostTransform

SITE_VARIABLE = "MEMSTORE_SITE_URL"
FORGES = ("github", "gitlab", "bitbucket")  # whose pages for editing a file and for reporting an issue are known
BINDER_KNOWS = ("https://github.com/", "https://gitlab.com/")
PATIENCE_S = 10  # for one question to git

HOST = re.compile(r"(?=.*\.)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::\d+)?", re.IGNORECASE)
SCP = re.compile(r"(?:[^@/\s]+@)?([^:/@\s]+):(?!//)/?(.+)")  # git@host:owner/name
PATH = re.compile(r"[\w.~-]+(?:/[\w.~-]+)+", re.ASCII)
BRANCH = re.compile(r"[\w.+-]+(?:/[\w.+-]+)*", re.ASCII)
SSH_HOSTS = {"ssh.github.com": "github.com", "altssh.gitlab.com": "gitlab.com"}  # for networks that close port 22


@dataclass(frozen=True)
class Repository:
    """A repository on the web.

    Attributes:
        url: its page, such as ``https://github.com/owner/name``, without credentials and without ``.git``.
        branch: the one that the pages are built from.
    """

    url: str
    branch: str

    @property
    def forge(self) -> str:
        """``github``, ``gitlab`` or ``bitbucket``, by the host's name; empty if it is none of these."""
        host = urlsplit(self.url).netloc
        return next((forge for forge in FORGES if forge in host), "")

    @property
    def site(self) -> str:
        """Where GitHub Pages publishes it, with a slash at the end; empty on other hosts."""
        host, (owner, name) = urlsplit(self.url).netloc, self.url.rsplit("/", 2)[1:]
        if host != "github.com":
            return ""
        home = f"{owner.lower()}.github.io"
        return f"https://{home}/" if name.lower() == home else f"https://{home}/{name}/"


def web_address(remote: str) -> str | None:
    """Return the web page of a git remote: no user, no password, no port of ssh.

    Args:
        remote: as git knows it: https, ssh, ``git@host:owner/name``.

    Returns:
        The address; None for what has no page: a path, a bundle, a host known to this machine alone.
    """
    scheme, separator, _ = remote.partition("://")
    if separator:
        try:
            parts = urlsplit(remote)
            host, port = parts.hostname or "", parts.port
        except ValueError:  # a port that is no number, a bracket left open
            return None
        scheme, path = scheme.lower().removeprefix("git+"), parts.path
        if scheme not in {"https", "http", "ssh", "git"} or parts.query or parts.fragment:
            return None
        host = f"{host}:{port}" if port and scheme in {"https", "http"} else host
    else:
        match = SCP.fullmatch(remote)
        if match is None:
            return None
        scheme, (host, path) = "ssh", match.groups()
    host, path = SSH_HOSTS.get(host.lower(), host.lower()), path.strip("/").removesuffix(".git")
    if not HOST.fullmatch(host) or not PATH.fullmatch(path) or set(path.split("/")) & {".", ".."}:
        return None
    return f"{'http' if scheme == 'http' else 'https'}://{host}/{path}"


def ask_git(folder: Path, *question: str) -> str:
    """Return git's answer, or an empty text: no git, no repository, nothing to say."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # a hook sets these
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *question],
            env=own,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout.strip()


def from_git(root: Path) -> tuple[str | None, str | None]:
    """Return the page of the remote ``origin``, and the branch there that is checked out here; None if unknown.

    Args:
        root: of the book. A repository around it, such as one of a home directory, does not count.
    """
    top = ask_git(root, "rev-parse", "--show-toplevel")
    if not top or Path(top).resolve() != root.resolve():
        return None, None
    url = web_address(ask_git(root, "remote", "get-url", "origin"))
    if url is None:
        return None, None
    # A branch that the remote does not have would lead nowhere.
    upstream = ask_git(root, "rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{upstream}")
    head = upstream or ask_git(root, "rev-parse", "--abbrev-ref", "origin/HEAD")
    branch = head.removeprefix("origin/") if head.startswith("origin/") else ""
    return url, branch if BRANCH.fullmatch(branch) else None


def from_actions(environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the page of the repository that GitHub Actions is building, and the branch; None if not said.

    Raises:
        ConfigError: the variables make no address.
    """
    name = environment.get("GITHUB_REPOSITORY")
    if not name:
        return None, None
    server = environment.get("GITHUB_SERVER_URL") or "https://github.com"
    url = web_address(f"{server.rstrip('/')}/{name}") if "://" in server else None
    if url is None or name.count("/") != 1:
        raise ConfigError(
            "GITHUB_SERVER_URL/GITHUB_REPOSITORY must be an address such as https://host/owner/name, got "
            f"{name!r} on {web_address(f'{server}/owner/name') or 'no host'}"
        )
    branch = environment.get("GITHUB_BASE_REF")  # of a pull request, whose own ref is a merge that goes away
    if not branch and environment.get("GITHUB_REF_TYPE", "branch") == "branch":
        branch = environment.get("GITHUB_REF_NAME")
    return url, branch if BRANCH.fullmatch(branch or "") else None


def locate(root: Path, default: Repository, environment: Mapping[str, str] = os.environ) -> Repository:
    """Return this copy's repository.

    Args:
        root: of the book.
        default: when neither the environment nor git knows one.
        environment: variables.
    """
    for url, branch in (from_actions(environment), from_git(root)):
        if url is not None:
            return Repository(url, branch or default.branch)
    return default


def published_at(repository: Repository, configured: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the address of the published site, with a slash at the end; empty if unknown.

    Args:
        repository: of this copy.
        configured: ``html: baseurl`` in ``_config.yml``, empty if not given.
        environment: variables.

    Raises:
        ConfigError: the variable holds no address.
    """
    for name, address in ((SITE_VARIABLE, environment.get(SITE_VARIABLE, "").strip()), ("html: baseurl", configured)):
        if address:
            return f"{_checked(name, address).rstrip('/')}/"
    return repository.site


def _checked(name: str, address: str) -> str:
    """Return an address that may stand on a page."""
    try:
        parts = urlsplit(address)
        good = parts.scheme in {"http", "https"} and parts.hostname and not (parts.query or parts.fragment)
    except ValueError:
        good, parts = False, urlsplit("")
    if not good or "@" in parts.netloc:
        got = "one with a user name or a password" if "@" in address else repr(address)
        raise ConfigError(f"{name} must be an address such as https://host/path/, got {got}")
    return address


def place(app: Sphinx, config: Config) -> None:
    """Point the buttons at this copy's repository, and tell Sphinx where the site will be published."""
    options = config.html_theme_options
    default = Repository(options["repository_url"], options.get("repository_branch") or "main")
    found = locate(Path(app.srcdir), default)
    config.memstore_upstream = default.url
    options.update(
        repository_url=found.url, repository_branch=found.branch, repository_provider=found.forge or "github"
    )
    if not found.forge:
        options.update(use_edit_page_button=False, use_issues_button=False)
    config.html_baseurl = published_at(found, config.html_baseurl)


class Follow(SphinxPostTransform):
    """Have links in the text that name the repository of ``_config.yml`` lead to this copy's repository."""

    default_priority = 700  # before the links are collected that `make links` follows

    def run(self, **kwargs: Any) -> None:
        """Rewrite the links of one page."""
        upstream, here = self.config.memstore_upstream, self.config.html_theme_options["repository_url"]
        for link in self.document.findall(nodes.reference):
            rest = link.get("refuri", "").removeprefix(upstream)
            if rest != link.get("refuri", "") and rest[:1] in {"", "/", "#", "?"}:
                link["refuri"] = here + rest


def mend_binder(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object) -> None:
    """Quote the address of a repository elsewhere as Binder wants it; the theme leaves its slashes alone."""
    url = app.config.html_theme_options["repository_url"]
    if url.startswith(BINDER_KNOWS):
        return
    for group in context.get("header_buttons", []):
        for button in group.get("buttons", []):
            if "/v2/git/" in button.get("url", ""):
                button["url"] = button["url"].replace(quote(url), quote(url, safe=""))


def setup(app: Sphinx) -> None:
    """Connect the repository to Sphinx."""
    app.add_config_value("memstore_upstream", "", "html")
    app.connect("config-inited", place)
    app.add_post_transform(Follow)
    app.connect("html-page-context", mend_binder, priority=510)  # after the theme has made its buttons
