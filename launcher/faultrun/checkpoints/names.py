"""What names say, of files, of directories and in a state dict: ranks, steps, epochs. Knows no format.

What words such as ``step_1000``, ``epoch=3-step=15`` and ``model_best`` say are guesses of a reader, believed
only where the contents are silent. In the contents any value may stand behind a name. Trainers agree on no
spelling, so here is a list of those in use: torch's ImageNet and elastic examples (``epoch``,
``EPOCHS_RUN``), Lightning (``epoch``, ``global_step``), Megatron (``iteration``), DeepSpeed
(``global_steps``), fairseq (``num_updates``), mmengine (``meta: {epoch, iter}``).
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

from faultrun.checkpoints.format import Claim, Listing
from faultrun.model.checkpoint import Entry, Kind

_RANK_DIRECTORY = re.compile(r"(?:rank|ckpt|device|mp_rank|process)[_-]?(\d{1,6})", re.IGNORECASE)
_UNFINISHED_FILE = re.compile(
    r"(?:\.(?:tmp|temp|part|partial|incomplete|writing|swp)(?:[.\-_]?\w*)?|~|_tmp)$"
    r"|^\.nfs[0-9a-f]+$|^\.?tmp[._-]",
    re.IGNORECASE,
)
_COUNTED_DIRECTORY = re.compile(
    r"^(?P<word>(?:.*[_-])?(?:rank|ckpt|device|step|epoch|iter|iteration|checkpoint))[_-]?\d+(?=_tmp$|$)",
    re.IGNORECASE,
)
_NEVER_ALONE = re.compile(
    r"(?:optimizer|scheduler|lr_scheduler|scaler|grad_scaler|sampler|rng_state|random_states|training_args"
    r"|custom_checkpoint|dl_state_dict|optim(?:izer)?_state_dict)(?![a-z]).*|.*_optim_states\.pt",
    re.IGNORECASE,
)
_DCP_PART = re.compile(r"(?:pytorch_model_fsdp|optimizer)_\d+")
_BEST = re.compile(r"(?:^|[^a-z])best(?:[^a-z]|$)", re.IGNORECASE)
_GASP = re.compile(r"(?:^|[^a-z])(?:breakpoint|gasp|preempt|emergency)(?:[^a-z]|$)", re.IGNORECASE)
_ALL_OF_A_NUMBER = r"(?!\d|[,_.']\d{3}(?!\d)|\.\d|(?:\.\d+)?e[+-]?\d|[kmg](?![a-z]))"
"""``1,000``, ``1_000``, ``1.5e+06`` and ``10k`` are not read: a part of a number is another number."""
_STEP = re.compile(
    rf"(?:^|[^a-z])(?P<word>global_?step|step|iter|iteration)[-_=]?(?P<number>\d{{1,15}}){_ALL_OF_A_NUMBER}",
    re.IGNORECASE,
)
_SPELLED = re.compile(
    r"(?<!\d)(?<!\d\.)(?:(?P<groups>\d{1,3}(?:[,']\d{3})+"
    r"|(?:(?<=(?:step|iter|tion)[-_=])|(?<![\w.]))[1-9]\d{0,2}(?:_\d{3})+)(?!\d)"
    r"|(?P<digits>\d+(?:\.\d+)?)(?:e(?P<power>\+?\d{1,2})(?!\d)|(?P<unit>[kmg])(?![a-z])))",
    re.IGNORECASE,
)
_EPOCH_AND_STEP = re.compile(r".+-\d+_\d+(?:_breakpoint)?\.ckpt")
_POWERS = {"k": 3, "m": 6, "g": 9}
_BEGIN_OF_STEP = re.compile(r"(?:^|[^a-z])(?:step|iter|iteration)[-_=]?\d", re.IGNORECASE)
_ALL_OF_AN_EPOCH = _ALL_OF_A_NUMBER.replace("_", "", 1)  # behind ``epoch_0_100`` stands a step
_EPOCH = re.compile(
    rf"(?:^|[^a-z])(?P<word>epoch|ep)[-_=]?(?P<number>\d{{1,9}}){_ALL_OF_AN_EPOCH}", re.IGNORECASE
)
# DeepSpeed's mp_rank and pp_rank are places in a grid, not global ranks.
_RANK = re.compile(r"(?:^|[-.]|(?<![mpdte]p)_)rank[-_]?(\d{1,6})(?!\d)", re.IGNORECASE)
# Not "ckpt_500": that is the directory of rank 500 in ResNet's layout.
_CHECKPOINT = re.compile(r"checkpoint[-_](\d{1,15})", re.IGNORECASE)
_LONGEST_SHOWN = 80
_SPELLINGS = {
    "epoch": ("epoch", "epoch_num", "current_epoch", "cur_epoch", "epochs_run", "epochs"),
    "global_step": (
        "global_step", "global_steps", "num_updates", "iteration", "iterations", "iter", "step", "step_num",
    ),
    "step_in_epoch": ("step_in_epoch", "batch_in_epoch"),
    "world_size": ("world_size",),
}  # fmt: skip
_KNOWN = frozenset(name for names in _SPELLINGS.values() for name in names)
_LARGEST = 2**53
_forget: list[Callable[[], None]] = []
_Told = TypeVar("_Told")


def remembered(tell: Callable[[str], _Told]) -> Callable[[str], _Told]:
    """Have what ``tell`` says of a name remembered until ``forget_names`` is called."""
    remembers = lru_cache(maxsize=1024)(tell)  # the files of all ranks share theirs
    _forget.append(remembers.cache_clear)
    return remembers


def forget_names() -> None:
    """Forget what was told of names: those of a thousand saves take a megabyte."""
    for forget in _forget:
        forget()


def claim_file(listing: Listing, name: str, *members: str) -> Claim:
    """Claim a file, or the ``members`` that are known by this name, with what the name's words say."""
    kind, rank, epoch, step, series = _told_by(name)
    return Claim(
        path=listing.join(name),
        members=members or (name,),
        kind=kind,
        rank=rank_of_directory(listing.path) if rank is None else rank,
        epoch=epoch,
        global_step=_step_of_directory(listing.path) if step is None else step,
        series=series,
    )


def claim_directory(listing: Listing, members: tuple[str, ...]) -> Claim:
    """Claim the directory itself as one checkpoint of these files, with what its name's words say."""
    name = base_name(listing.path)
    return Claim(
        path=listing.path,
        members=members,
        kind=kind_of(name),
        rank=rank_of_directory(listing.path),
        epoch=_number(_EPOCH, name),
        global_step=_step_of_directory(listing.path),
        series=_series(name),
    )


@remembered
def rank_of_directory(path: str) -> int | None:
    """The rank that the last two names of directory ``path`` tell: ``rank_3``, ``ckpt_3``, ``rank3/weights``.

    MindSpore's layouts (``rank_R``, ResNet's ``ckpt_R``) and torch's ``rankR`` are meant; ``step_3`` is not.
    """
    found = (_RANK_DIRECTORY.fullmatch(name) for name in path.rsplit("/", 2)[:0:-1])
    return next((int(rank[1]) for rank in found if rank), None)


def unfinished_directory(path: str, root: str) -> str:
    """Why all in ``path`` is unfinished: a directory below ``root`` ends in ``_tmp`` or ``.tmp``; else ''."""
    for name in path[len(root) :].split("/"):
        if name.endswith(("_tmp", ".tmp")):
            return f"its directory {name} ends in {name[-4:]}: the save was not finished"
    return ""


@remembered
def is_unfinished(name: str) -> bool:
    """Whether writers use such a file name before the final rename (``.tmp``, ``.part``, ``x~`` ...)."""
    return _UNFINISHED_FILE.search(name) is not None


@remembered
def is_side(name: str) -> bool:
    """Whether a file holds no model (an optimizer, random states): it is no checkpoint by itself."""
    return _NEVER_ALONE.fullmatch(name) is not None


def is_dcp_part(name: str) -> bool:
    """Whether such a directory, by ``torch.distributed.checkpoint``, is only one part of FSDP's."""
    return _DCP_PART.fullmatch(name) is not None


@remembered
def step_in(name: str) -> tuple[str, int] | None:
    """The word and the number by which ``name`` says a step, else an epoch; None where it says neither.

    ``checkpoint-20`` and ``checkpoint_20`` say one, too.
    """
    whole = _CHECKPOINT.fullmatch(name)
    if whole is not None:
        return "checkpoint", int(whole[1])
    found = _STEP.search(name) or _EPOCH.search(name)
    return None if found is None else (found["word"].lower(), int(found["number"]))


def has_part_of_step(name: str) -> bool:
    """Whether ``name`` says a step in a spelling that is not read, as ``step_1,000`` does."""
    return _BEGIN_OF_STEP.search(name) is not None and _STEP.search(name) is None


@remembered
def plainly_numbered(name: str) -> str:
    """``name`` with ``1,000``, ``step_1_000``, ``1e+03`` and ``1.5k`` in plain digits.

    That is a guess: it serves to see which files bear one number, and which comes before.
    A ``#`` of the name's own is another sign: where names are compared it stands for a number.
    """
    return name if _EPOCH_AND_STEP.fullmatch(name) else _SPELLED.sub(_in_digits, name.replace("#", "♯"))


def _in_digits(spelled: re.Match[str]) -> str:
    if spelled["groups"]:
        return re.sub(r"\D", "", spelled["groups"])
    power = int(spelled["power"]) if spelled["power"] else _POWERS[spelled["unit"].lower()]
    return str(round(float(spelled["digits"]) * 10**power))


@remembered
def rank_left_open(name: str) -> str:
    """``name`` with ``*`` for the number of the rank that it says: the same for the files of all ranks.

    A number behind it is none of a rank when this is asked again: ``model_rank*_250.pt``.
    """
    counted = _RANK_DIRECTORY.fullmatch(name)
    if counted is not None:
        return name[: counted.start(1)]
    found = _RANK.search(name)
    return name if found is None else f"{name[: found.start(1)]}*{name[found.end(1) :]}"


def rank_told(name: str) -> str:
    """The number of the rank that ``name`` says; '' where it says none."""
    found = _RANK_DIRECTORY.fullmatch(name) or _RANK.search(name)
    return "" if found is None else found[1]


def base_name(path: str) -> str:
    """The last component of a path."""
    return path.rsplit("/", 1)[-1]


@lru_cache(maxsize=4096)
def place_of(directory: str) -> str:
    """``directory`` with the numbers of ranks and steps taken out: one for all files of a training code."""
    return "/".join(_COUNTED_DIRECTORY.sub(r"\g<word>*", name) for name in directory.split("/"))


def shown(name: str) -> str:
    """``name`` of unknown origin if it is short and printable, else escaped and cut: no terminal obeys it."""
    text = name if name.isprintable() else ascii(name)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


def with_progress(entry: Entry, items: Iterable[tuple[object, object]]) -> Entry:
    """Let contents, as names in any case and values, overrule what the entry's name said; integers count."""
    counts = {
        key.lower(): value
        for key, value in items
        if isinstance(key, str) and type(value) is int and 0 <= value < _LARGEST
    }
    told: dict[str, Any] = {}
    for fact, names in _SPELLINGS.items():
        said = [counts[name] for name in names if name in counts]
        told |= {fact: said[0]} if said else {}
    return replace(entry, **told)


def is_progress(name: str) -> bool:
    """Whether a value of this name would be taken for a part of the progress."""
    return name.lower() in _KNOWN


def kind_of(name: str) -> Kind:
    """Why a file of this name was written."""
    if _BEST.search(name):
        return Kind.BEST
    return Kind.GASP if _GASP.search(name) else Kind.PERIODIC


@remembered
def _told_by(name: str) -> tuple[Kind, int | None, int | None, int | None, str]:
    """Kind, rank, epoch, global step and series that the name of a file says."""
    return kind_of(name), _number(_RANK, name), _number(_EPOCH, name), _number(_STEP, name), _series(name)


@remembered
def _step_of_directory(path: str) -> int | None:
    """The step in the nearest of the last two names: ``step_1000``, ``checkpoint-5/model``."""
    for folder in path.rsplit("/", 2)[:0:-1]:
        found = _CHECKPOINT.fullmatch(folder)
        step = int(found[1]) if found else _number(_STEP, folder)
        if step is not None:
            return step
    return None


def _series(name: str) -> str:
    """The name with its numbers taken out: the same for all steps and ranks."""
    return re.sub(r"\d+", "#", name)


def _number(pattern: re.Pattern[str], name: str) -> int | None:
    found = pattern.search(name)
    return int(found[found.lastindex or 0]) if found else None
