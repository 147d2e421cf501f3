"""``--rewrite`` from template to file: checked before anything is spawned, carried out before a restart."""

from collections.abc import Sequence
from pathlib import Path

from faultrun.configs.apply import apply, preview
from faultrun.core import template
from faultrun.errors import ConfigError
from faultrun.model.edit import EditResult, Setting
from faultrun.model.spec import Rewrite

_SAMPLE = template.Values(
    checkpoint="/checkpoints/rank_0/net-2_1215.ckpt",
    run_id="run",
    incarnation=1,
    epoch=2,
    step=1215,
    global_step=3090,
)


def check(rewrites: Sequence[Rewrite], *, originals: Path) -> tuple[EditResult, ...]:
    """Prove that every rewrite will work, by doing each on a sample in memory; nothing is written.

    Returns what would happen to each file; ``copy`` tells that an edited copy
    will be needed, which ``argv.pointed`` must be able to place. ConfigError
    for a wrong template, file or key.
    """
    for rewrite in rewrites:
        if "rank" in template.parse(rewrite.template).fields:
            raise ConfigError(
                f"{rewrite.template!r} cannot be written into {rewrite.file}",
                because="{rank} differs from worker to worker, and they all read this one file",
                hint="give it as an argument instead: --resume_arg",
            )
    return preview(settings(rewrites, _SAMPLE), originals=originals)


def carry_out(
    rewrites: Sequence[Rewrite], values: template.Values, *, originals: Path
) -> tuple[EditResult, ...]:
    """Fill in every template and put the values into their files; see ``apply.apply``."""
    return apply(settings(rewrites, values), originals=originals)


def settings(rewrites: Sequence[Rewrite], values: template.Values) -> tuple[Setting, ...]:
    """The rewrites with their templates filled in. ConfigError for an unknown field or an unknown value."""
    return tuple(
        Setting(
            file=rewrite.file,
            key=rewrite.key,
            value=template.rendered_value(template.parse(rewrite.template), values),
            format=rewrite.format,
        )
        for rewrite in rewrites
    )
