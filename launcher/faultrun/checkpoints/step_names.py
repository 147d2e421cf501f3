"""What names outside MindSpore's grammar say: ``step_1000``, ``epoch=3-step=15``, ``model_best``.

Guesses of a reader, believed only where the contents are silent.
"""

import re

from faultrun.model.checkpoint import Kind

_BEST = re.compile(r"(?:^|[^a-z])best(?:[^a-z]|$)", re.IGNORECASE)
_GASP = re.compile(r"(?:^|[^a-z])(?:breakpoint|gasp|preempt|emergency)(?:[^a-z]|$)", re.IGNORECASE)
_STEP = re.compile(r"(?:^|[^a-z])(?:global_?step|step|iter|iteration)[-_=]?(\d{1,15})(?!\d)", re.IGNORECASE)
_EPOCH = re.compile(r"(?:^|[^a-z])(?:epoch|ep)[-_=]?(\d{1,9})(?!\d)", re.IGNORECASE)
# DeepSpeed's mp_rank and pp_rank are places in a grid, not global ranks.
_RANK = re.compile(r"(?:^|[-.]|(?<![mpdte]p)_)rank[-_]?(\d{1,6})(?!\d)", re.IGNORECASE)
# Not "ckpt_500": that is the directory of rank 500 in ResNet's layout.
_CHECKPOINT = re.compile(r"checkpoint[-_](\d{1,15})", re.IGNORECASE)


def kind_of(name: str) -> Kind:
    """Why the file was written."""
    if _BEST.search(name):
        return Kind.BEST
    return Kind.GASP if _GASP.search(name) else Kind.PERIODIC


def epoch_of(name: str) -> int | None:
    """The epoch in ``epoch_3`` or ``ep3``."""
    return _number(_EPOCH, name)


def rank_of(name: str) -> int | None:
    """The rank in ``state_rank3``."""
    return _number(_RANK, name)


def global_step_of(name: str, directory: str) -> int | None:
    """The step in the name, else in the nearest two directories: ``step_1000``, ``checkpoint-5/model``."""
    own = _number(_STEP, name)
    if own is not None:
        return own
    for folder in directory.rsplit("/", 2)[:0:-1]:
        found = _CHECKPOINT.fullmatch(folder)
        step = int(found[1]) if found else _number(_STEP, folder)
        if step is not None:
            return step
    return None


def series_of(name: str) -> str:
    """The name with its numbers taken out: the same for all steps and ranks."""
    return re.sub(r"\d+", "#", name)


def _number(pattern: re.Pattern[str], name: str) -> int | None:
    found = pattern.search(name)
    return int(found[1]) if found else None
