"""``faultrun ckpt``: what checkpoints there are, which are whole, and where a run would resume."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultrun.cli.console import answer, say
from faultrun.cli.options.choices import likely
from faultrun.cli.options.help.completion import files, folders
from faultrun.cli.verbs import example
from faultrun.errors import NoWholeCheckpoint, UsageError
from faultrun.model.checkpoint import Depth

if TYPE_CHECKING:
    from faultrun.checkpoints.catalog import Catalog
    from faultrun.checkpoints.find import Findings
    from faultrun.checkpoints.scan_result import Scan

_DATA_ERROR = 65


def _common(command: Callable[..., int]) -> Callable[..., int]:
    """The arguments that all verbs take."""
    options = (
        click.argument("roots", nargs=-1, required=True, metavar="DIR...", shell_complete=folders),
        click.option("--json", "as_json", is_flag=True, help="Print JSON instead of words."),
        click.option("--why", is_flag=True, help="Say of each file why it is whole or not."),
        click.option("--trust", is_flag=True, help="Let what cannot be verified (encrypted) count as whole."),
        click.option(
            "--depth",
            type=click.Choice([depth.value for depth in Depth]),
            default=Depth.CHECKSUM.value,
            show_default=True,
            help="How far to verify: names only, structure to the last byte, checksums too.",
        ),
        click.option(
            "--checkpoint_pattern",
            "pattern",
            metavar="REGEX",
            help="Take files of such names too; groups rank, epoch, step and step_in_epoch are read.",
        ),
        click.option(
            "--log_dir",
            metavar="DIR",
            shell_complete=folders,
            help="A run's log_dir: what was verified before is not read again.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group(no_args_is_help=False, epilog=example("faultrun ckpt list --why checkpoints"))
def ckpt() -> None:
    """List, verify and choose checkpoints; no run is needed."""


@ckpt.command("list", epilog=example("faultrun ckpt list checkpoints"))
@_common
def list_(roots: tuple[str, ...], as_json: bool, why: bool, depth: str, **more: Any) -> int:
    """List the checkpoints under DIR, newest first, and whether each is whole.

    Ends with 65 when there are some and none is whole, or when it is given a file that is none.
    """
    return _show(roots, Depth(depth), as_json=as_json, why=why, **more)


@ckpt.command(epilog=example("faultrun ckpt verify --depth=checksum checkpoints"))
@_common
def verify(roots: tuple[str, ...], as_json: bool, why: bool, depth: str, **more: Any) -> int:
    """Verify every checkpoint under DIR and say of each what was found.

    Ends with 65 when there are some and none is whole, or when it is given a file that is none.
    """
    del why  # that is what verify is for
    return _show(roots, Depth(depth), as_json=as_json, why=True, **more)


@ckpt.command(epilog=example("faultrun ckpt choose --world_size=8 checkpoints"))
@_common
@click.option(
    "--world_size", metavar="N", type=click.IntRange(1), help="Ranks to serve.  [default: as the files say]"
)
@click.option("--run_id", metavar="ID", help="Refuse files that name another run.")
@click.option(
    "--group_info",
    metavar="FILE",
    shell_complete=files,
    help="group_info.pb of any rank: every replica group needs a whole file.",
)
@click.option("--lost_ranks", metavar="R,R", default="", help="Ranks whose disk is gone.")
@click.option("--restore_ranks_sh", metavar="FILE", help="Write RESTORE_RANKS(_MAP) for a shell.")
@click.option("--recovery_info", metavar="FILE", help="Write recovery_info.json.")
def choose(roots: tuple[str, ...], as_json: bool, why: bool, depth: str, **more: Any) -> int:
    """Say where a run would resume, and why not from anything newer.

    Verifies newest first and no more than needed. Ends with 65 when there
    are checkpoints and none can be used.
    """
    from faultrun.checkpoints.find import scan_and_choose
    from faultrun.cli.ckpt import restore
    from faultrun.cli.ckpt.progress_bar import Bar
    from faultrun.cli.ckpt.rows import choice_object
    from faultrun.core.recovery.choose import NoneUsable

    catalog = _catalog(roots, more.pop("pattern"), more.pop("log_dir"))
    request = restore.ChooseOptions(**more)
    need = restore.need(request, catalog.scan().entries)
    with closing(Bar()) as bar:
        found = scan_and_choose(catalog, need, depth=Depth(depth), progress=bar)
        restore.write_files(request, catalog, found, need)
    if as_json:
        answer(json.dumps(choice_object(found.choice), indent=2))
        return _DATA_ERROR if isinstance(found.choice, NoneUsable) else 0
    return _tell(found, catalog, why=why)


def _catalog(roots: tuple[str, ...], pattern: str | None, log_dir: str | None) -> "Catalog":
    from faultrun.checkpoints.catalog import Catalog
    from faultrun.checkpoints.formats.user_pattern import Pattern
    from faultrun.checkpoints.registry import load_registry

    for root in roots:
        if not Path(root).exists():
            path = Path(root)
            beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
            near = likely(path.name, beside)
            hint = f"did you mean {path.with_name(near)}?" if near else "faultrun ckpt list ."
            raise UsageError(f"no {root}", because="there is no such file or directory", hint=hint)
    registry = load_registry((Pattern(pattern),) if pattern else ())
    for broken in registry.broken:
        say(broken)
    memory = str(Path(log_dir) / "checkpoints.jsonl") if log_dir else None
    return Catalog(roots, memory_path=memory, registry=registry)


def _show(
    roots: tuple[str, ...], depth: Depth, *, as_json: bool, why: bool, trust: bool, **where: str | None
) -> int:
    from faultrun.checkpoints.find import verify_all
    from faultrun.cli.ckpt.progress_bar import Bar
    from faultrun.cli.ckpt.rows import listed, saves, table

    catalog = _catalog(roots, **where)
    scan = catalog.scan()
    with closing(Bar()) as bar:
        verdicts = {} if depth is Depth.NAME else verify_all(catalog, scan.entries, depth=depth, progress=bar)
    found = saves(scan.entries, verdicts)
    if as_json:
        answer(json.dumps(listed(found, scan), indent=2))
    elif found or scan.refused:
        answer("\n".join(table(found, scan, reasons=why)))
    else:
        answer(_nothing(catalog, scan))
    if (doubts := sum(save.unverifiable for save in found)) and not (trust or as_json):
        answer(f"{doubts} cannot be verified: --trust lets them count as whole")
    named = any(Path(root).is_file() for root in roots)
    asked = depth is not Depth.NAME and (found or scan.refused or named)
    usable = any(save.whole or (trust and save.unverifiable) for save in found)
    return _DATA_ERROR if asked and not usable else 0  # unasked is not the same as torn


def _nothing(catalog: "Catalog", scan: "Scan") -> str:
    from faultrun.checkpoints.formats.unrecognised import unknown_files

    more = f" ({len(scan.unfinished)} unfinished: --why names them)" if scan.unfinished else ""
    there = unknown_files(catalog.roots, catalog.registry.formats)
    return f"no checkpoint in {' '.join(catalog.roots)}{more}{'; ' if there else ''}{there}"


def _tell(found: "Findings", catalog: "Catalog", *, why: bool) -> int:
    from faultrun.cli.ckpt.rows import chosen_lines
    from faultrun.core.recovery.choose import Chosen, NoneUsable

    choice, roots = found.choice, catalog.roots
    refused = [f"refused   {one.path}: {one.why}" for one in found.refused]
    if isinstance(choice, Chosen):
        if refused and not why:
            refused = [f"refused   {len(refused)} others: --why names them"]
        answer("\n".join([*chosen_lines(choice.point), *refused]))
        return 0
    if isinstance(choice, NoneUsable):
        newest = choice.refused[0]
        if why:
            answer("\n".join(refused))
        again = f"choose --trust {' '.join(roots)}, to use what cannot be verified"
        because = f"{len(choice.refused)} refused; {newest.path}: {newest.why}"
        hint = f"faultrun ckpt {again if choice.unverifiable else 'list --why ' + ' '.join(roots)}"
        raise NoWholeCheckpoint(f"no usable checkpoint in {' '.join(roots)}", because=because, hint=hint)
    answer(_nothing(catalog, found.scan))
    return 0
