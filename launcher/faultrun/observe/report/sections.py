"""Parts of the document that the page has no picture for: a heading and rows, made from names and values.

A part that is added to the document is on the page without a line of template.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from faultrun.observe.report.words import label, shown

DRAWN = frozenset((
    "schema", "run_id", "command", "framework", "workers", "version", "began_utc", "last_utc", "phase",
    "ended", "wall_s", "productive_share", "productive_unknown", "spent", "incidents_total", "restarts",
    "stops", "standbys", "lost_steps", "high_step", "step_s", "recovery", "gasps", "refused", "causes",
    "faults_by_cause", "blamed_ranks", "save_interval", "advice", "events", "over_time", "progress",
    "incidents", "incarnations",
))  # fmt: skip
"""What the page shows in a form of its own, or leaves to report.json."""

_TITLES = {"savings": "What it saved you"}
_MOST_ROWS, _SENTENCE = 10, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """One value: where it is in the document, what it is called, and how it is shown."""

    path: str
    name: str
    value: object
    text: str


@dataclass(slots=True, kw_only=True)
class Grid:
    """Objects with the same fields; ``left_out`` of them are not shown."""

    name: str
    columns: list[str]
    cells: list[list[str]]
    left_out: int = 0


@dataclass(slots=True, kw_only=True)
class Section:
    """A part of the document."""

    name: str
    title: str
    lead: str = ""
    rows: list[Detail] = field(default_factory=list)
    tables: list[Grid] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def sections(report: Mapping[str, Any]) -> Iterator[Section]:
    """The parts that are not drawn. ``title`` and ``text`` are a part's own words; an empty text hides it."""
    more = Section(name="more", title="More")
    for name, value in report.items():
        if name in DRAWN or value in (None, "", {}, []):
            continue
        if not isinstance(value, (Mapping, list, tuple)):
            _fill(more, name, label(name), value)
        elif not isinstance(value, Mapping) or value.get("text", True):
            yield _section(name, value)
    if more.rows:
        yield more


def _section(name: str, value: Mapping[str, Any] | list[Any] | tuple[Any, ...]) -> Section:
    section = Section(name=name, title=_TITLES.get(name) or label(name).capitalize())
    if isinstance(value, Mapping):
        section.title = str(value.get("title") or section.title)
        section.lead = str(value.get("text") or "")
        value = {key: one for key, one in value.items() if key not in ("title", "text")}
    _fill(section, name, "" if isinstance(value, dict) else label(name), value)
    return section


def _fill(section: Section, path: str, name: str, value: object) -> None:
    match value:
        case Mapping():
            alike = _alike(value)
            if any(value[key][name] for key in alike for name in value[key]):
                section.tables.append(_table(name, [{"": label(key), **value[key]} for key in alike]))
            for key, one in value.items():
                if key not in alike:
                    inner = f"{name}: {label(key)}" if name else label(key)
                    _fill(section, f"{path}.{key}", inner, one)
        case list() | tuple() if value and all(isinstance(one, Mapping) for one in value):
            section.tables.append(_table(name, [dict(_flat(one)) for one in value[:_MOST_ROWS]]))
            section.tables[-1].left_out = len(value) - len(section.tables[-1].cells)
        case list() | tuple():
            section.notes += [str(one) for one in value[:_MOST_ROWS]]
        case None:
            pass
        case str() if len(value) > _SENTENCE:
            section.notes.append(value)
        case _:
            key = path.rpartition(".")[2]
            section.rows.append(Detail(path=path, name=name, value=value, text=shown(key, value)))


def _alike(value: Mapping[str, Any]) -> list[str]:
    """Objects beside each other that have two fields or more in common: the rows of one table."""
    objects = ((key, one) for key, one in value.items() if isinstance(one, Mapping))
    held = (Mapping, list, tuple)
    inner = {key: set(one) for key, one in objects if not any(isinstance(x, held) for x in one.values())}
    found = [
        key
        for key, names in inner.items()
        if any(other != key and len(names & inner[other]) > 1 for other in inner)
    ]
    return found if len(found) > 1 else []


def _table(name: str, rows: list[dict[str, Any]]) -> Grid:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[shown(key, row[key]) if key in row else "" for key in columns] for row in rows]
    return Grid(name=name, columns=[label(key) for key in columns], cells=cells)


def _flat(row: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    for key, value in row.items():
        name = f"{above} {key}".strip()
        match value:
            case Mapping():
                yield from _flat(value, name)
            case list() | tuple():
                yield name, ", ".join(str(one) for one in value)
            case _:
                yield name, value
