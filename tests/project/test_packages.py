"""What is published: the source package can do what the README says, the wheel has what the program reads."""

import ast
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultrun.cli.docs import pages
from support.places import ROOT

READ_BY_THE_PROGRAM = {".yaml", ".html", ".md", ".json", ".sbatch", ".typed"}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return folder


def below(folder: str) -> set[str]:
    paths = (
        path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    return {str(path.relative_to(ROOT)) for path in paths}


@pytest.mark.slow
def test_make_works_in_the_source_package(published: Path) -> None:
    (packed,) = published.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {
        "Makefile",
        "constraints.txt",
        "pyproject.toml",
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        ".ci/run",
    }
    assert (
        needed | below("launcher") | below("templates") | below("docs") | below("examples/01_mindspore_lenet")
        <= names
    )
    assert {name for name in below("tests") if name.endswith(".py")} <= names


@pytest.mark.slow
def test_the_wheel_has_every_file_that_the_program_reads(published: Path) -> None:
    (wheel,) = published.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    beside_code = {path for path in below("launcher/faultrun") if Path(path).suffix in READ_BY_THE_PROGRAM}
    assert {path.removeprefix("launcher/") for path in beside_code} <= names
    templates = {path.removeprefix("templates/") for path in below("templates")}
    assert {f"faultrun/_templates/{name}" for name in templates} <= names
    pages = {path.removeprefix("docs/") for path in below("docs") if path.endswith(".md")}
    assert {f"faultrun/_docs/{name}" for name in pages} <= names


@pytest.mark.long
def test_what_is_said_to_users_names_no_file_that_only_a_checkout_has() -> None:
    named = [
        f"{file.relative_to(ROOT)}: {text}"
        for file in sorted((ROOT / "launcher" / "faultrun").rglob("*.py"))
        for text in said(ast.parse(file.read_text(encoding="utf-8")))
        if re.search(r"\b(docs|examples|templates|launcher)/[\w-]+\.\w+|[A-Z]+\.md\b", text)
    ]
    assert named == []


def said(tree: ast.Module) -> Iterator[str]:
    """Every text in a source that is no docstring."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


def test_every_page_that_a_message_names_can_be_read() -> None:
    for file in (ROOT / "launcher" / "faultrun").rglob("*.py"):
        for page in re.findall(r"faultrun docs ([a-z][\w-]+)", file.read_text(encoding="utf-8")):
            assert page in {*pages(), "lists"}, f"{file}: {page}"
