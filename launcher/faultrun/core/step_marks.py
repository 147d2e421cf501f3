"""Which number of one line of a log may be the step: one that it calls so, or that is placed as steps are.

``step 5``, ``iter 146``, ``[ 4/12``, ``37/100`` behind a bar of tqdm, ``[23] train-...``; not a date, a time,
a share, a length with its unit, nor the step of an evaluation. Whether training goes on with it is for
``logged_steps`` to learn.
"""

import re
from typing import NamedTuple

_WHOLE_NUMBER = (
    r"(?P<step>\d{1,3}(?:[,_]\d{3})+(?![\d,_])|\d{1,15})(?!\w)(?![.,:'\u2019\u00a0\u202f]\d)(?!\s?%)"
)
_NAME = (
    r"(?i)\b(?P<whole>global[_ ]?)?(?:step|it(?:er(?:ation)?)?)\b(?:\(train\))?['\"]?\s?[:=#]?\s*"
    r"(?P<open>\[)?\s*"
)
_NAMED = re.compile(_NAME + _WHOLE_NUMBER + r"(?:\s*/\s*(?P<of>\d{1,15})(?![\w.]))?")
_UNREAD = re.compile(_NAME + r"(?=\d)")
"""A number such as ``3.5k``, ``1e+04`` or ``3.500`` may be the next step, and it is unknown which."""
_FRACTION = re.compile(
    r"(?i)(?:^|(?P<open>[\[(])|(?P<bar>\|)|\bbatch\b\s?[:=]?)\s*"
    + _WHOLE_NUMBER
    + r"\s*/\s*(?P<of>\d{1,15})(?![\w./])(?! \d\d?:\d)"
)
_SLASHED = re.compile(r"\d\s*/\s*\d")
_LEADING = re.compile(
    r"^\W*(?:\[\s*" + _WHOLE_NUMBER + r"\s*\]|[A-Za-z]+ #?(?P<other>\d{1,15})\s?[:|,](?!\d))"
)
_EPOCH = re.compile(r"(?i)\bepoch\b(?:\(train\))?['\"]?\s?[:=]?\s*\[?\s*(?P<epoch>\d{1,9})\b(?!\.\d)")
_OUTER = re.compile(r"(?<![\w.,:/-])(?P<epoch>\d{1,9})\]?\s*$")
"""A number right before ``[ 4/12`` counts epochs."""
_NOT_TRAINING = re.compile(
    r"(?i)\b(load|resum|restor|recover|checkpoint|ckpt|sav|start|begin|from|total|max|warm|every|per|num|config)"
)
"""Words of lines that name steps that are not being done; beside a loss they mean nothing."""
_BESIDE = re.compile(
    r"(?i)\b(?:val(?:id(?:at(?:ion|ing|e))?)?|eval(?:uat(?:ion|ing|e))?|test(?:ing)?|predict(?:ion|ing)?"
    r"|infer(?:ence)?|dev|cv|hold-?out|calibrat(?:ion|ing)|profil(?:e|ing)|lr[ _-]finder"
    r"|sanity(?: check(?:ing)?)?|warm-?up)(?:[\W\d_]|dataloader|epoch|global)*$"
)
_LOSS_MONITOR = re.compile(r"^epoch: \d+ step: \d+, loss is ")
"""mindspore/train/callback/_loss_monitor.py: both count from 1, the step anew in every epoch."""
_MMENGINE = re.compile(r"\bEpoch\(train\)")
"""mmengine/runner/log_processor.py: likewise."""
LOSS = re.compile(
    r"(?i)(?<![A-Za-z_])(?:(?:train(?:ing)?|total|mean|avg)[_ ])?loss\b['\"]?\s*(?:is\b|[:=])?\s*"
    r"(?P<loss>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf)\b"
)
OTHER_LOSS = re.compile(r"(?i)\b(?:val(?:id(?:ation)?)?|eval(?:uat(?:ion|ing))?|test(?:ing)?|held-out)\b")
PART_OF_EPOCH = re.compile(r"['\"]?\bepoch['\"]?\s*[:=]\s*['\"]?(?P<epoch>\d+\.\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\d+(?:[.,:]\d+)*(?:e[-+]?\d+)?")
_BAR = re.compile(r"%\|[^|]*\|")
_DECIMAL = re.compile(r"\d\.\d")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_BEFORE_CHARS, _PLACE_CHARS = 200, 30


class StepMark(NamedTuple):
    """A number that may be the step, ``of`` so many; ``epoch`` is named in the line or was before.

    ``place`` is the same for the marks at one place of such lines. ``named``: the line calls it a step,
    ``whole``: a global one. ``anew``: it counts anew in each epoch, ``from_1``: and both count from 1.
    ``loss``: the line has one, ``other``: and speaks of an evaluation. ``shape`` is the line without its
    numbers, ``wordy``: it has words behind the step and nothing measured.
    """

    step: int
    place: str
    of: int | None = None
    epoch: int | None = None
    named: bool = False
    whole: bool = False
    anew: bool = False
    from_1: bool = False
    loss: bool = False
    other: bool = False
    shape: str = ""
    wordy: bool = False


class LineRead(NamedTuple):
    """What one line says: a ``mark``, the ``epoch`` (and a ``part`` of it), and whether it has a ``loss``.

    ``unread`` is the place of a number that it calls a step and that is no whole one.
    """

    mark: StepMark | None = None
    epoch: int | None = None
    part: float | None = None
    loss: bool = False
    unread: str = ""


_NOTHING = LineRead()


def read_line(raw: str, epoch: int | None) -> LineRead:
    """What ``raw`` says; ``epoch`` was named before."""
    line = _COLOUR.sub("", raw) if "\x1b" in raw else raw
    small = line.casefold()
    told = _EPOCH.search(line) if "epoch" in small else None
    found = _number(line, small, told)
    loss = "loss" in small and LOSS.search(line) is not None
    if not loss and _NOT_TRAINING.search(line):
        return _NOTHING
    other_kind = _UNREAD.search(line) if found is None or found.re is not _NAMED else None
    unread = "" if other_kind is None else _place(line[: other_kind.end()])
    if found is None and told is None and not loss:
        return LineRead(unread=unread)
    if found is not None and _BESIDE.search(line[: found.start()]):
        return _NOTHING
    other = loss and OTHER_LOSS.search(line) is not None
    part = PART_OF_EPOCH.search(line) if "epoch" in small else None
    named = int(told["epoch"]) if told is not None else None
    mark = None if found is None else _mark(line, found, named, epoch, loss, other)
    return LineRead(
        mark=mark,
        epoch=named if mark is None else mark.epoch,
        part=None if part is None else float(part["epoch"]),
        loss=loss and not (mark is None and _BAR.search(line)),  # a bar's 0 is no step
        unread=unread,
    )


def _number(line: str, small: str, told: re.Match[str] | None) -> re.Match[str] | None:
    """The step's own words first, then a fraction, then what leads the line; never the epoch's number."""
    if ("step" in small or "it" in small) and (named := list(_NAMED.finditer(line))):
        return next((one for one in named if one["whole"]), named[0])
    taken = None if told is None else told.start("epoch")
    for found in _FRACTION.finditer(line) if _SLASHED.search(line) else ():
        done, of = _int(found["step"]), int(found["of"])
        if found.start("step") != taken and done <= of and (done or not found["bar"]):
            return found
    leading = _LEADING.match(line)
    if leading is None or (told is not None and told.start("epoch") <= leading.end()):
        return None
    return leading


def _mark(
    line: str, found: re.Match[str], named_epoch: int | None, before: int | None, loss: bool, other: bool
) -> StepMark:
    groups = found.groupdict()
    text = "step" if groups["step"] is not None else "other"
    place, behind = line[: found.start(text)], line[found.end() :]
    named, of = found.re is _NAMED, groups.get("of")
    boxed = groups.get("open") is not None
    inner = boxed and found.re is _FRACTION and named_epoch is None
    outer = _OUTER.search(line[: found.start()]) if inner else None
    here = named_epoch if outer is None else int(outer["epoch"])
    epoch = before if here is None else here
    monitor = named and _LOSS_MONITOR.match(line) is not None
    boxed = boxed and named and of is not None and here is not None
    return StepMark(
        step=_int(found[text]),
        place=f"{_place(place)}/{of}{loss}{other}",
        of=None if of is None else int(of),
        epoch=epoch,
        named=named,
        whole=bool(groups.get("whole")),
        anew=monitor or boxed or (found.re is _FRACTION and epoch is not None),
        from_1=monitor or boxed or _MMENGINE.search(line) is not None,
        loss=loss,
        other=other,
        shape="" if loss else _masked(line),
        wordy=not loss and not _DECIMAL.search(line) and any(map(str.isalpha, _EPOCH.sub("", behind))),
    )


def _place(before: str) -> str:
    return _masked(before[-_BEFORE_CHARS:])[-_PLACE_CHARS:]


def _masked(text: str) -> str:
    text = _BAR.sub("%|", text) if "%|" in text else text
    return "".join(_NUMBER.sub("#", text).split())


def _int(digits: str) -> int:
    return int(digits.replace(",", ""))
