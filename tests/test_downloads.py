"""What a page offers to take along: the notebook, which also runs away from the repository, and the source."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from nbclient import NotebookClient

from tests.sources import ROOT, pages

PAGES = {page.docname: page for page in pages()}
CHAPTERS = [name for name, page in PAGES.items() if page.executable]
ALONE = "book/01_outer_product"  # a cheap chapter that measures, checks claims and draws


def menu(site: Path, name: str) -> list[str]:
    """Return where the entries of a page's download menu lead, all of which save the file under its name."""
    soup = BeautifulSoup((site / f"{name}.html").read_text(encoding="utf8"), "html.parser")
    links = soup.select(".dropdown-download-buttons a[href]")
    assert all(link.get("download") == "" and "target" not in link.attrs for link in links)
    return [link["href"] for link in links]


@pytest.mark.site
@pytest.mark.parametrize("name", PAGES)
def test_menu_offers_notebook_and_source_under_their_names(site, name):
    here = site / name
    offered = [(here.parent / href).resolve() for href in menu(site, name)]
    endings = [".ipynb", ".md"] if name in CHAPTERS else [".md"]
    assert [path.name for path in offered] == [here.name + ending for ending in endings]
    assert all(path.is_file() for path in offered)


@pytest.mark.site
@pytest.mark.parametrize("name", PAGES)
def test_source_is_the_file_itself(site, name):
    assert (site / "_sources" / f"{name}.md").read_bytes() == PAGES[name].path.read_bytes()


@pytest.mark.site
@pytest.mark.parametrize("name", CHAPTERS)
def test_notebook_is_one_with_every_cell_and_its_output(site, name):
    text = (site / "_sources" / f"{name}.ipynb").read_text(encoding="utf8")
    assert json.loads(text)["nbformat"] == 4
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.source.strip() for cell in code] == [cell.source.strip() for cell in PAGES[name].cells]
    figures = [cell for cell in code if cell.metadata.get("mystnb", {}).get("figure")]
    assert len(figures) == len(PAGES[name].figures)
    for cell in figures:
        assert any("text/html" in output.get("data", {}) for output in cell.outputs)
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    assert notebook.metadata.kernelspec.name == "python3"


def test_every_package_of_the_library_is_installed():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["tool"]["setuptools"]["packages"]
    there = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "memstore_lib").rglob("__init__.py")}
    assert sorted(listed) == sorted(there | {"memstore_lib.book"})


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder with the library as pip installs it, away from the repository."""
    folder = tmp_path_factory.mktemp("installed")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--target", str(folder))
    source = tmp_path_factory.mktemp("source")  # as setuptools leaves folders behind
    tracked = ("pyproject.toml", "README.md", "LICENSE", "memstore_lib", "book/claims.yml", "book/data")
    for name in tracked:
        (source / name).parent.mkdir(exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, source / name)
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return folder


@pytest.fixture
def alone(installed, tmp_path, monkeypatch) -> Path:
    """An empty folder, whose Python knows the installed library and no repository."""
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.setenv("MEMSTORE_DEVICE", "cpu")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_installed_library_brings_the_ledger_and_the_recorded_runs(alone, installed):
    code = (
        "import memstore_lib, pathlib\n"
        "from memstore_lib import claims\n"
        "from memstore_lib.language_models import records, settings\n"
        "print(pathlib.Path(memstore_lib.__file__).parent, claims.find().parent, len(claims.load()))\n"
        "print(records.published(settings.SETTINGS['medium']) is not None)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    library, ledger, rows, recorded = done.stdout.split()
    assert Path(library) == installed / "memstore_lib"
    assert Path(ledger) == installed / "memstore_lib" / "book"
    assert int(rows) == len(yaml.safe_load((ROOT / "book" / "claims.yml").read_text(encoding="utf8")))
    assert recorded == "True"


@pytest.mark.site
def test_a_downloaded_notebook_runs_alone(site, alone, installed):
    (alone / "mine.ipynb").write_bytes((site / "_sources" / f"{ALONE}.ipynb").read_bytes())
    notebook = nbformat.read(alone / "mine.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("import memstore_lib; print(memstore_lib.__file__)"))
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(alone)}}).execute()
    *cells, where = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert where.outputs[0].text.startswith(str(installed))
    outputs = [output for cell in cells for output in cell.outputs]
    assert any("ms-figure" in output.get("data", {}).get("text/html", "") for output in outputs)
    cost = [output.metadata["memstore"] for output in outputs if "memstore" in output.get("metadata", {})]
    assert len(cost) == 1, "the closing cell has compared what was measured with the ledger"
    assert sum(cost[0]["claims"].values()) > 0
