"""``faultrun lint``: what is wrong with a manifest, a line for each finding; ``--fix`` mends."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultrun.cli.console import answer, say
from faultrun.errors import FaultrunError, UsageError

if TYPE_CHECKING:
    from faultrun.manifests.lint_input import LintSettings

_FINDINGS = 1
_BOM = "\ufeff"
_STDIN = "-"
_MOST_BYTES = 10_000_000


class NotAManifestError(FaultrunError):
    """The file is no Kubernetes manifest (EX_DATAERR)."""

    exit_code = 65


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--fix", is_flag=True, help="Mend what is mechanical; not one other byte changes.")
@click.option(
    "--grace_over_time",
    "--grace-over-time",
    type=click.IntRange(2, 3600),
    metavar="SECONDS",
    help="grace-over-time of the cluster's scheduler.  [900, or as a scheduler's config map in FILE says]",
)
def lint(files: tuple[str, ...], fix: bool, grace_over_time: int | None) -> int:
    """Check manifests: grace windows, labels, names that must agree, mounts, the command of PID 1.

    Each finding is a line, FILE:LINE: RULE what · why · fix. Ends with 1 if there
    are findings, with 65 if a FILE is not a manifest.
    """
    from faultrun.cli.manifests.reader import read_requirements
    from faultrun.manifests.lint_input import LintSettings

    settings = LintSettings(grace_over_time_s=grace_over_time, reader=read_requirements)
    codes = [_code(file, settings, _mend if fix else _check) for file in files]
    return max(codes)


def _code(file: str, settings: "LintSettings", look: Callable[[str, "LintSettings"], int]) -> int:
    """The exit code of one file; what is no manifest does not keep the other files from being checked."""
    try:
        return _FINDINGS if look(file, settings) else 0
    except NotAManifestError as error:
        say(str(error))
        return error.exit_code


def _check(file: str, settings: "LintSettings") -> int:
    """Print the findings of a file; how many there are."""
    from faultrun.manifests import lint as rules

    text = _text(file, sys.stdin.buffer.read(_MOST_BYTES + 1) if file == _STDIN else _content(file))
    try:
        found = rules.lint(text, settings)
    except rules.NotAManifest as error:
        raise _not_a_manifest(f"{file}:{error.line}", error.because) from None
    for finding in found:
        answer(finding.told(file))
    return len(found)


def _mend(file: str, settings: "LintSettings") -> int:
    """Rewrite a file with what can be mended, print the findings that are left; how many these are."""
    from faultrun.configs.files import LOCAL, explained, locked, replace_file, snapshot
    from faultrun.manifests import lint as rules

    _content(file)
    path = Path(file).resolve()
    with explained(path), locked(path):
        before = snapshot(path)
        try:
            done = rules.mend(_text(file, before.data), settings)
        except rules.NotAManifest as error:
            raise _not_a_manifest(f"{file}:{error.line}", error.because) from None
        if done.mended:
            bom = _BOM if before.data.startswith(_BOM.encode()) else ""
            replace_file(LOCAL, path, (bom + done.text).encode(), before.attributes)
    for finding in done.mended:
        say(f"mended {file}:{finding.line}: {finding.rule} {finding.what} · {finding.fix}")
    for finding in done.left:
        answer(finding.told(file))
    return len(done.left)


def _content(file: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            return opened.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        hint = "check the path; - reads standard input"
        raise UsageError(f"no {file}", because="there is no such file", hint=hint) from None
    except OSError as error:
        raise _not_a_manifest(file, error.strerror or str(error)) from None


def _text(file: str, data: bytes) -> str:
    if len(data) > _MOST_BYTES:
        raise _not_a_manifest(file, "it is larger than 10 MB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _not_a_manifest(file, f"byte {error.start} is not UTF-8 text") from None


def _not_a_manifest(where: str, because: str) -> NotAManifestError:
    return NotAManifestError(
        f"{where} is not a manifest",
        because=because,
        hint="faultrun render vcjob --set image=IMAGE shows one",
    )
