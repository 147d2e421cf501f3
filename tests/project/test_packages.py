"""What is published: the source package can do what the README says, the wheel has what the program reads."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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
