"""A fork publishes itself: a small copy of the book, built with a remote of its own, leads to itself everywhere."""

from __future__ import annotations

import os
import subprocess
from xml.etree import ElementTree

import pytest
import yaml
from bs4 import BeautifulSoup
from PIL import Image

from tests.sources import ROOT
from tests.test_build import Book, copy, small_book

pytestmark = pytest.mark.build

UPSTREAM = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf8"))["repository"]["url"]
SECRET = "ghp_0123456789"
FORK = "https://github.com/Some-One/my-copy"
SITE = "https://some-one.github.io/my-copy/"
NAMES = ("intro", "chapter", "reproducibility")
#: What would say to a build where it runs.
SAID = ("GITHUB_REPOSITORY", "GITHUB_SERVER_URL", "GITHUB_REF_NAME", "GITHUB_REF_TYPE", "GITHUB_BASE_REF")


@pytest.fixture(scope="module")
def fork(tmp_path_factory) -> Book:
    root = tmp_path_factory.mktemp("a fork of 本")
    small_book(root)
    copy(root, ["CITATION.cff"])
    (root / "book/intro.md").write_text(
        "# A small book\n\n"
        f"Read & <learn> more in the [README]({UPSTREAM}#a-part), [not here]({UPSTREAM}-of-others).\n",
        encoding="utf8",
    )
    config = root / "_config.yml"
    text = config.read_text(encoding="utf8")
    old = "memstore_preview: {page: book/02_least_squares, figure: fig-two-stores}"
    assert old in text
    config.write_text(text.replace(old, "memstore_preview: {page: book/chapter, figure: fig-small}"), encoding="utf8")
    git(root, "init", "-q")
    git(root, "add", "book/intro.md")
    git(root, "commit", "-q", "-m", "first")
    git(root, "remote", "add", "origin", f"https://me:{SECRET}@github.com/Some-One/my-copy.git")
    git(root, "update-ref", "refs/remotes/origin/trunk", "HEAD")
    git(root, "branch", "-q", "--set-upstream-to=origin/trunk")
    book = Book(root)
    book.built(**dict.fromkeys(SAID, ""))
    return book


def git(root, *arguments: str) -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=mine", *arguments]
    subprocess.run(command, cwd=root, env=own, check=True, capture_output=True)


def links(page: BeautifulSoup) -> list[str]:
    return [link["href"] for link in page.find_all("a", href=True)]


def meta(page: BeautifulSoup) -> dict[str, str]:
    found = {}
    for tag in page.find_all("meta", content=True):
        name = tag.get("property") or tag.get("name")
        assert name not in found or name == "viewport", f"{name} stands twice"
        found[name] = tag["content"]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_buttons_lead_to_the_fork_and_its_branch(fork, name):
    found = links(fork.page(name))
    assert FORK in found
    assert f"{FORK}/edit/trunk/book/{name}.md" in found
    assert any(link.startswith(f"{FORK}/issues/new?") for link in found)
    launch = [link for link in found if link.startswith("https://mybinder.org/")]
    wanted = f"https://mybinder.org/v2/gh/Some-One/my-copy/trunk?urlpath=lab/tree/book/{name}.md"
    assert launch == ([wanted] if name == "chapter" else [])


def test_links_in_the_text_follow(fork):
    found = links(fork.page("intro"))
    assert f"{FORK}#a-part" in found
    assert f"{UPSTREAM}-of-others" in found, "another repository, whose name only begins alike"


def test_nothing_of_upstream_and_no_password_is_published(fork):
    for path in (fork.root / "_build" / "html").rglob("*"):
        if path.suffix in {".html", ".xml", ".txt", ".cff", ".js", ".json", ".ipynb"}:
            text = path.read_text(encoding="utf8")
            assert SECRET not in text, path
            assert "me:" + "ghp" not in text, path
            if "_sources" not in path.parts:
                assert UPSTREAM not in text.replace(f"{UPSTREAM}-of-others", ""), path


@pytest.mark.parametrize("name", NAMES)
def test_pages_say_what_they_are(fork, name):
    page = fork.page(name)
    found = meta(page)
    address = f"{SITE}book/{name}.html"
    assert [link["href"] for link in page.find_all("link", rel="canonical")] == [address]
    assert found["og:url"] == address
    assert found["og:image"] == f"{SITE}_static/preview.png"
    assert found["og:image:alt"].endswith("A matrix of four cells, which grow from left to right.")
    assert found["og:site_name"] == "Transformers from Memory"
    assert found["og:title"] == page.find("h1").get_text().rstrip("#")
    assert found["og:type"] == ("website" if name == "intro" else "article")
    assert found["twitter:card"] == "summary_large_image"
    assert found.get("og:description") == found.get("description")


def test_a_description_is_the_first_paragraph_as_text(fork):
    assert meta(fork.page("intro"))["description"] == "Read & <learn> more in the README, not here."


def test_search_and_indices_stay_out_of_search_results(fork):
    for name in ("search", "genindex"):
        page = BeautifulSoup((fork.root / f"_build/html/{name}.html").read_text(encoding="utf8"), "html.parser")
        assert meta(page)["robots"] == "noindex"
    assert "robots" not in meta(fork.page("intro"))


def test_sitemap_lists_the_pages_and_robots_the_sitemap(fork):
    site = fork.root / "_build" / "html"
    places = ElementTree.parse(site / "sitemap.xml").findall("{*}url/{*}loc")
    assert [place.text for place in places] == [f"{SITE}book/{name}.html" for name in ("intro", "chapter", NAMES[2])]
    assert f"Sitemap: {SITE}sitemap.xml" in (site / "robots.txt").read_text(encoding="utf8").splitlines()
    first = BeautifulSoup((site / "index.html").read_text(encoding="utf8"), "html.parser")
    assert first.find("link", rel="canonical")["href"] == f"{SITE}book/intro.html"


def test_preview_is_a_picture_with_the_figure(fork):
    with Image.open(fork.root / "_build/html/_static/preview.png") as picture:
        assert (picture.format, picture.size) == ("PNG", (1200, 630))
        chart = picture.convert("RGB").crop((60, 160, 1140, 570))
        title = picture.convert("L").crop((160, 50, 1140, 120))
    assert len(chart.getcolors(maxcolors=chart.width * chart.height)) > 50
    assert title.getextrema()[0] < 100


def test_citation_has_the_address_of_the_fork_and_the_day_of_its_numbers(fork):
    about = yaml.safe_load((fork.root / "_build/html/CITATION.cff").read_text(encoding="utf8"))
    source = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf8"))
    assert {name: about[name] for name in source} == source
    assert about["repository-code"] == FORK
    assert about["url"] == SITE
    row = fork.page("reproducibility").find_all("table")[-1].find("tbody").find("tr")
    assert row.find_all("td")[-1].get_text(strip=True).startswith(about["date-released"].isoformat())


def test_elsewhere_what_needs_an_address_is_left_out(fork, tmp_path):
    """On a host whose forge is not known there is no edit link to guess, and no address of a published site."""
    git(fork.root, "remote", "set-url", "origin", "ssh://git@codeberg.org:22/some/copy.git")
    outcome = fork.built(**dict.fromkeys(SAID, ""))
    assert outcome.executed == 0
    found = links(fork.page())
    assert "https://codeberg.org/some/copy" in found
    assert not [link for link in found if "/edit/" in link or "/issues/" in link]
    quoted = "https%3A%2F%2Fcodeberg.org%2Fsome%2Fcopy"
    assert f"https://mybinder.org/v2/git/{quoted}/trunk?urlpath=lab/tree/book/chapter.md" in found
    page = fork.page()
    assert page.find("link", rel="canonical") is None
    assert not {"og:url", "og:image", "twitter:card"} & set(meta(page))
    assert meta(page)["og:title"] == "1. A chapter".removeprefix("1. ")
    site = fork.root / "_build" / "html"
    assert not (site / "sitemap.xml").exists()
    assert "Sitemap" not in (site / "robots.txt").read_text(encoding="utf8")
    assert "url" not in yaml.safe_load((site / "CITATION.cff").read_text(encoding="utf8"))


def test_environment_comes_before_git_and_a_given_address_before_all(fork):
    said = {
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "other/two",
        "GITHUB_REF_NAME": "next",
        "GITHUB_REF_TYPE": "branch",
        "GITHUB_BASE_REF": "",
        "MEMSTORE_SITE_URL": "https://book.example.org",
    }
    fork.built(**said)
    assert "https://github.com/other/two/edit/next/book/chapter.md" in links(fork.page())
    assert meta(fork.page())["og:url"] == "https://book.example.org/book/chapter.html"
    assert (fork.root / "_build" / "html" / "sitemap.xml").is_file()
