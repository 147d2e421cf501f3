"""How a person should take a line of ours. Where there are no colours it is the same text."""

from enum import Enum


class Tone(Enum):
    """The value is the parameter of a terminal's SGR sequence."""

    PLAIN = ""
    QUIET = "2"
    FAILED = "31"
    WARNING = "33"
    GOOD = "32"


class Toned(str):
    """A text whose lines have tones, in their order; a reader that knows of none sees plain text."""

    tones: tuple[Tone, ...] = ()


def toned(text: str, *tones: Tone) -> Toned:
    """``text`` with a tone for each of its lines; the last one is that of the lines that remain."""
    said = Toned(text)
    missing = text.count("\n") + 1 - len(tones)
    said.tones = tones + tones[-1:] * missing
    return said


def coloured(text: str, tones: tuple[Tone, ...]) -> str:
    """``text``, which holds no escapes any more, with the colours of a terminal."""
    if not tones:
        return text
    lines = text.split("\n")
    said = (*tones, *[Tone.PLAIN] * (len(lines) - len(tones)))
    return "\n".join(painted(line, tone) for line, tone in zip(lines, said, strict=False))


def painted(line: str, tone: Tone) -> str:
    """One line, or a part of one."""
    return f"\x1b[{tone.value}m{line}\x1b[0m" if tone.value and line else line
