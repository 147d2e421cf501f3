"""What every editor gives back: a text with one value changed, proved, or the reason why not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from faultrun.model.edit import Key
from faultrun.text.patch import MalformedText, Patch, line_of, patched
from faultrun.text.yaml_tree import AliasNode, MappingNode, Node, ScalarNode, SequenceNode


class EditRefused(Exception):
    """An edit that cannot be done as asked; becomes a ConfigError once the file's name is known."""

    def __init__(self, because: str, *, hint: str) -> None:
        super().__init__(because)
        self.because, self.hint = because, hint


class NoParent(EditRefused):
    """A nested key whose surroundings are not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """A text after one edit. ``before`` is the old value as spelled, None when the key was absent."""

    text: str
    line: int
    before: str | None
    after: str


def edited(text: str, patches: Sequence[Patch], *, before: str | None, after: str) -> Edited:
    """Put ``patches``, ascending and apart, into ``text``."""
    whole = patched(text, patches)
    first = patches[0]
    lead = len(first.new) - len(first.new.lstrip("\r\n"))
    return Edited(text=whole, line=line_of(whole, first.start + lead), before=before, after=after)


def replaced(text: str, start: int, end: int, new: str) -> Edited:
    """Put ``new`` in the place of the value ``text[start:end]``, which may be the same."""
    return edited(text, [Patch(start=start, end=end, new=new)], before=text[start:end], after=new)


def twice(lines: Sequence[int]) -> EditRefused:
    """Refuse a key that is there more than once: readers disagree which one counts."""
    times = "twice" if len(lines) == 2 else f"{len(lines)} times"
    apart = sorted(set(lines))
    where = f"line {apart[0]}" if len(apart) == 1 else "lines " + ", ".join(str(line) for line in apart)
    return EditRefused(f"it is there {times}: {where}", hint="leave one of them, or name it by a longer KEY")


def not_a_value(what: str, names: Sequence[str]) -> EditRefused:
    """Refuse to put one value in the place of a whole list or mapping."""
    inside = f": {', '.join(names[:5])}" if names else ", such as KEY.NAME or KEY[0]"
    return EditRefused(f"it holds {what}, not a value", hint=f"name a value inside it{inside}")


def no_parent(name: str, names: Sequence[str]) -> NoParent:
    """Refuse a nested key whose surroundings are not there to put it into."""
    known = ", ".join(list(names)[:8])
    hint = f"one of: {known}" if known else "check the KEY's first part"
    return NoParent(f"there is no {name!r} to look into", hint=hint)


def only_document(format_name: str) -> EditRefused:
    """Refuse the number of a document where there is but one."""
    return EditRefused(f"{format_name} has one document", hint="leave out the number before #")


def prove(same: Callable[[], bool], line: int) -> None:
    """Refuse a result unless it reads back as the old file with one value changed."""
    try:
        proved = same()
    except (EditRefused, MalformedText):
        proved = False
    if not proved:
        hint = "simplify that line by hand, for example to: KEY: VALUE"
        raise EditRefused(f"changing line {line} would change something else as well", hint=hint)


Trail = list[tuple[Node, int]]
"""Every container passed on the way from the root, and the position taken in it."""


def find(text: str, root: Node, key: Key, *, mapping: str = "a mapping") -> tuple[Trail, Node | None]:
    """Walk to the value that ``key`` names; None and a last position of -1 where its mapping lacks it.

    EditRefused where the way is barred, or leads to no value; ``mapping`` is the format's word for one.
    """
    node, trail = root, Trail()
    for depth, step in enumerate(key.steps):
        at = _position(text, node, step, is_root=depth == 0)
        if at is None and depth == len(key.steps) - 1:
            return [*trail, (node, -1)], None
        if at is None:
            raise no_parent(str(step), node.names if isinstance(node, MappingNode) else [])
        trail.append((node, at))
        match node:
            case MappingNode():
                node = node.pairs[at][1]
            case SequenceNode():
                node = node.items[at]
    match node:
        case MappingNode():
            raise not_a_value(mapping, [f"{key.text}.{name}" for name in node.names])
        case SequenceNode():
            raise not_a_value("a list", [f"{key.text}[{at}]" for at in range(len(node.items))])
    return trail, node


def _position(text: str, node: Node, step: str | int, *, is_root: bool) -> int | None:
    """Where ``step`` leads from ``node``; None when a mapping, or an empty document, lacks it."""
    where = f"line {line_of(text, node.start)}"
    match node:
        case MappingNode():
            found = node.named(str(step))
            if len(found) > 1:
                raise twice([line_of(text, node.pairs[at][0].start) for at in found])
            return found[0] if found else None
        case SequenceNode():
            if not str(step).isdecimal() or int(step) >= len(node.items):
                because = f"{step!r} is not a position in a list of {len(node.items)}"
                raise EditRefused(because, hint="count from 0: KEY[0]")
            return int(step)
        case AliasNode():
            hint = f"set the value where &{node.anchor} stands"
            raise EditRefused(f"{where} is the alias *{node.anchor}", hint=hint)
        case ScalarNode():
            if is_root and not text[node.start : node.end].strip():
                return None
            raise EditRefused(f"{where} holds a value, not {step!r}", hint="shorten the KEY")


def put(trail: Trail, new: Node) -> Node:
    """The root with ``new`` at the end of ``trail``."""
    for container, at in reversed(trail):
        match container:
            case MappingNode(pairs=pairs):
                new = replace(container, pairs=(*pairs[:at], (pairs[at][0], new), *pairs[at + 1 :]))
            case SequenceNode(items=items):
                new = replace(container, items=(*items[:at], new, *items[at + 1 :]))
    return new
