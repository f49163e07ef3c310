"""How the book may be used, and how it is cited: the same wherever it is said."""

from __future__ import annotations

import tomllib

import yaml

from tests.sources import ROOT


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf8")


def test_code_and_text_have_a_licence_each():
    assert read("LICENSE").startswith("MIT License")
    text = " ".join(read("LICENSE-TEXT").split())
    assert "Creative Commons Attribution 4.0 International License (CC BY 4.0)" in text
    assert "https://creativecommons.org/licenses/by/4.0/" in text
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert (project["license"], project["license-files"]) == ("MIT", ["LICENSE"])
    footer = yaml.safe_load(read("_config.yml"))["html"]["extra_footer"]
    assert "https://creativecommons.org/licenses/by/4.0/" in footer
    assert "MIT License" in footer
    assert "`LICENSE`, `LICENSE-TEXT`" in read("README.md")


def test_citation_has_what_the_format_asks_for_and_no_address():
    """The addresses are those of the copy that is built; here one would be wrong in every fork."""
    about = yaml.safe_load(read("CITATION.cff"))
    config = yaml.safe_load(read("_config.yml"))
    assert about["cff-version"] == "1.2.0"
    assert about["title"] == config["title"]
    assert about["authors"] == [{"name": config["author"]}]
    assert about["message"]
    assert about["license"] == "MIT"
    assert not {"url", "repository", "repository-code", "version", "date-released"} & set(about)
