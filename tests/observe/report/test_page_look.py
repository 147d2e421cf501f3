"""How the report page looks: colours that stand out in both schemes, labels that do not overlap."""

import re
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from faultrun.observe.account.timeline import Spending
from faultrun.observe.report import pages
from faultrun.observe.report.drawing import Picture, timeline
from support.stories.report_documents import of_story

_SCHEMES = re.compile(r":root \{(.*?)\}", re.DOTALL)
_COLOUR = re.compile(r"--(\w+): #([0-9a-f]{6});")
_ON_CARDS = ("training", "recompute", "detect", "drain", "choose", "backoff", "spawn", "start", "unreported",
             "idle", "away")  # fmt: skip


def contrast(one: str, other: str) -> float:
    """WCAG 2.2: the ratio of relative luminances."""
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_words_and_shapes_stand_out_in_both_schemes() -> None:
    css = Path(pages.__file__).with_name("page.css").read_text()
    light, dark = (dict(_COLOUR.findall(found)) for found in _SCHEMES.findall(css))
    assert {kind.value for kind in Spending} <= light.keys()
    for scheme in (light, light | dark):
        for ground in ("bg", "card", "soft"):
            assert contrast(scheme["ink"], scheme[ground]) >= 4.5
            assert contrast(scheme["dim"], scheme[ground]) >= 4.5
        for badge in ("finished", "failed", "stopped", "open"):
            assert contrast(scheme["on"], scheme[badge]) >= 4.5
        for kind in _ON_CARDS:
            assert contrast(scheme[kind], scheme["card"]) >= 3, kind


_NARROW = 376.0  # pixels: a screen of 500 without margins and lane names
_LETTER = 7.6  # at 12 pixels, digits and words of DejaVu Sans, which is wide


def extents(picture: Picture) -> dict[float, list[tuple[float, float]]]:
    """Where words begin and end on a narrow screen, by their line."""
    found: dict[float, list[tuple[float, float]]] = {}
    for word in picture.words:
        if "desk" in word.style:
            continue
        at, width = word.x / 100 * _NARROW + word.dx, len(word.text) * _LETTER
        style = word.style.split()[0]
        begin = at - (width if style in ("lane", "before") else width / 2 if style == "middle" else 0)
        found.setdefault(word.y, []).append((begin, begin + width))
    return found


@given(
    st.floats(-1, 9).map(lambda power: 10**power),
    st.integers(1, 600),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 600)), max_size=90),
    st.integers(0, 10**12),
)
def test_no_label_of_the_timeline_lies_on_another(
    wall_s: float, workers: int, faults: list[tuple[float, int]], steps: int
) -> None:
    incidents = [
        {"number": number, "at_s": at * wall_s, "rank": rank % workers, "cause": "signal", "what": "killed"}
        for number, (at, rank) in enumerate(sorted(faults), start=1)
    ]
    begins = [0.0, *(fault["at_s"] for fault in incidents), wall_s]
    lives = [
        {"number": number, "begin_s": begin_s, "end_s": end_s, "end": "incident"}
        for number, (begin_s, end_s) in enumerate(pairwise(begins))
    ]
    picture = timeline(
        {
            **of_story(), "wall_s": wall_s, "workers": workers, "incidents": incidents, "incarnations": lives,
            "progress": [[0.0, 0], [wall_s, steps]],
        }
    )  # fmt: skip
    for placed in extents(picture).values():
        for (_, end), (begin, _) in pairwise(sorted(placed)):
            assert end <= begin
        assert max(end for _, end in placed) <= _NARROW + 1
    for bar in picture.bars:
        assert 0 <= bar.x <= bar.x + bar.width <= 100.01
    for dot in picture.dots:
        assert 0 <= dot.x <= 100
