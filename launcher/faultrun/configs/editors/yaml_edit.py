"""One value of a YAML stream changed; every other character stays.

The old value may be plain, quoted, spread over lines, a ``|`` or ``>`` block, empty
or an alias; anchor and tag before it and the comment behind it stay. A new string is
written in double quotes. A missing key goes to the end of its document (or of its
parent mapping, where KEY is nested): with ``<<`` merges that is what overrides.
"""

import re
from dataclasses import replace

from faultrun.configs.editors.edited import Edited, EditRefused, Trail, edited, find, prove, put
from faultrun.configs.editors.value_types import as_spelled, plain, retyped
from faultrun.model.edit import Key, Scalar, ScalarKind
from faultrun.text.patch import Patch, appended, line_of, next_line
from faultrun.text.yaml_reader import Document, documents
from faultrun.text.yaml_scalar import go_kind, quoted
from faultrun.text.yaml_tree import TAG_PREFIX, AliasNode, MappingNode, Node, ScalarNode, last_of, walk

_BREAKS = "\r\n\x85\u2028\u2029"
_HEADER = re.compile(r"[|>][-+0-9]*")
_BLOCK_LINE_END = re.compile(f"[{_BREAKS}]|$")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def edit(text: str, key: Key, value: Scalar) -> Edited:
    """Set ``key`` to ``value``; EditRefused with the reason where that cannot be done safely."""
    before = documents(text) or (Document(root=_blank(len(text), len(text)), end=len(text)),)
    if key.document >= len(before):
        count = f"{len(before)} document" + ("s" if len(before) > 1 else "")
        raise EditRefused(f"it has {count}, counted from 0", hint=f"0#KEY to {len(before) - 1}#KEY")
    return _Edit(text, before, key, value).run()


class _Edit:
    """One edit of one stream, with what its steps share."""

    def __init__(self, text: str, before: tuple[Document, ...], key: Key, value: Scalar) -> None:
        self._text, self._before = text, before
        self._document = before[key.document]
        self._key, self._value = key, value

    def run(self) -> Edited:
        trail, node = find(self._text, self._document.root, self._key)
        for container, _ in trail:
            self._refuse_shared(container)
        if node is None:
            result, expected = self._insert(trail)
        else:
            result, expected = self._replace(trail, node)
        wanted = list(self._before)
        wanted[self._key.document] = replace(self._document, root=expected)
        prove(lambda: documents(result.text) == tuple(wanted), result.line)
        return result

    def _replace(self, trail: Trail, node: Node) -> tuple[Edited, Node]:
        match node:
            case AliasNode():
                new, spelled = self._new_scalar(_blank(node.start, node.end))
                patches = [Patch(start=node.start, end=node.end, new=spelled)]
                before = "*" + node.anchor
            case ScalarNode():
                self._refuse_shared(node)
                new, spelled = self._new_scalar(node)
                before = self._text[node.start : node.end].rstrip(_BREAKS)
                if new == node:
                    return self._unchanged(node, before), self._document.root
                patches = self._scalar_patches(node, spelled)
        return edited(self._text, patches, before=before, after=spelled), put(trail, new)

    def _unchanged(self, node: Node, spelled: str) -> Edited:
        return Edited(text=self._text, line=line_of(self._text, node.start), before=spelled, after=spelled)

    def _insert(self, trail: Trail) -> tuple[Edited, Node]:
        parent, _ = trail.pop()
        name = str(self._key.steps[-1])
        new, spelled = self._new_scalar(_blank(0, 0))
        entry = f"{self._spelled_key(name)}: {spelled}"
        pair = (ScalarNode(tag=TAG_PREFIX + "str", value=name), new)
        if not isinstance(parent, MappingNode):
            patch = appended(self._text, self._document.end, entry)
            grown = MappingNode(pairs=(pair,))
        else:
            patch = self._entry_patch(parent, entry, at_root=not trail)
            grown = replace(parent, pairs=(*parent.pairs, pair))
        return edited(self._text, [patch], before=None, after=spelled), put(trail, grown)

    def _entry_patch(self, parent: MappingNode, entry: str, *, at_root: bool) -> Patch:
        if parent.flow and parent.pairs:
            at = last_of(parent.pairs[-1][1])
            return Patch(start=at, end=at, new=f", {entry}")
        if parent.flow:
            return Patch(start=parent.end - 1, end=parent.end - 1, new=entry)
        indented = " " * parent.column + entry
        if at_root:
            return appended(self._text, self._document.end, indented)
        last = last_of(parent)
        ended = last > 0 and self._text[last - 1] in _BREAKS
        return appended(self._text, last if ended else next_line(self._text, last), indented)

    def _new_scalar(self, old: ScalarNode) -> tuple[ScalarNode, str]:
        """The node the value becomes, and its text."""
        value = retyped(old.kind, self._value)
        if isinstance(value, bool):
            tag, spelled = "bool", as_spelled(value, old.value if old.kind is ScalarKind.BOOL else "")
        elif isinstance(value, str):
            tag, spelled = "str", quoted(value, self._text)
        else:
            tag, spelled = ("int" if isinstance(value, int) else "float"), plain(value)
        content = value if isinstance(value, str) else spelled
        tag = old.tag if old.tagged else TAG_PREFIX + tag
        return replace(old, tag=tag, value=content), spelled

    def _scalar_patches(self, node: ScalarNode, spelled: str) -> list[Patch]:
        if node.style in {"|", ">"}:
            return self._block_patches(node, spelled)
        if node.start < node.end or self._text[node.start - 1].isspace():
            return [Patch(start=node.start, end=node.end, new=spelled)]
        colon = "" if self._text[node.start - 1] in ":-?" or node.anchor or node.tagged else ":"
        return [Patch(start=node.start, end=node.end, new=f"{colon} {spelled}")]

    def _block_patches(self, node: ScalarNode, spelled: str) -> list[Patch]:
        """A block keeps the comment on its first line; its own lines go."""
        header = _HEADER.match(self._text, node.start)
        header_end = header.end() if header else node.start
        content = _line_end(self._text, header_end)
        last = len(self._text[: node.end].rstrip(" \t" + _BREAKS))
        value = Patch(start=node.start, end=header_end, new=spelled)
        if last <= content:
            return [value]
        return [value, Patch(start=content, end=_line_end(self._text, last), new="")]

    def _refuse_shared(self, node: Node) -> None:
        """An anchored value or mapping that is used again, or merged, would change there too."""
        if isinstance(node, AliasNode) or node.anchor is None:
            return
        nodes = walk(self._document.root)
        uses = [one for one in nodes if isinstance(one, AliasNode) and one.anchor == node.anchor]
        if uses:
            lines = ", ".join(str(line_of(self._text, alias.start)) for alias in uses)
            raise EditRefused(
                f"it belongs to &{node.anchor}, used again in line {lines}: that would change too",
                hint=f"set the key where *{node.anchor} is used, or give that place a value of its own",
            )

    def _spelled_key(self, name: str) -> str:
        bare = _PLAIN_KEY.fullmatch(name) and go_kind(name) is ScalarKind.STR
        return name if bare else quoted(name, self._text)


def _blank(start: int, end: int) -> ScalarNode:
    return ScalarNode(tag=TAG_PREFIX + "null", value="", start=start, end=end)


def _line_end(text: str, index: int) -> int:
    found = _BLOCK_LINE_END.search(text, index)
    return found.start() if found else len(text)
