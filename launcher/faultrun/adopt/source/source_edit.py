"""Places of Python's syntax tree as positions in the text, and edits that put a line or an argument there."""

import ast

from faultrun.text.patch import Patch, line_break


class SourceText:
    """A file's text. Columns of ``ast`` count bytes of UTF-8, positions here characters."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def start(self, node: ast.expr | ast.stmt) -> int:
        """Where the node begins."""
        return self._at(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt) -> int:
        """Where it ends."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.expr | ast.stmt) -> str:
        """How it is written."""
        return self.text[self.start(node) : self.end(node)]

    def indent(self, node: ast.stmt) -> str:
        """What stands before it in its line; all of it blank for a statement of its own line."""
        return self.text[self._starts[node.lineno - 1] : self.start(node)]

    def line_before(self, node: ast.stmt, *lines: str) -> Patch:
        """Lines before a statement, as far to the right as it is."""
        at = self._starts[node.lineno - 1]
        return Patch(start=at, end=at, new=self._written(lines, self.indent(node)))

    def line_after(self, node: ast.stmt, *lines: str) -> Patch:
        """Lines behind a statement, as far to the right as it is."""
        assert node.end_lineno is not None
        at = self._starts[node.end_lineno]
        written = self._written(lines, self.indent(node))
        if at and self.text[at - 1] not in "\r\n":
            written = line_break(self.text) + written.rstrip("\r\n")
        return Patch(start=at, end=at, new=written)

    def argument(self, call: ast.Call, written: str) -> Patch:
        """One more argument, as the last one."""
        at = self.end(call) - 1
        before = self.text[:at].rstrip()
        last = max([self.end(one) for one in (*call.args, *(one.value for one in call.keywords))], default=-1)
        if last < 0:
            return Patch(start=at, end=at, new=written)
        comma = "," in self.text[last:at]
        place = len(before) if comma else last
        return Patch(start=place, end=place, new=f" {written}" if comma else f", {written}")

    def replaced(self, node: ast.expr, written: str) -> Patch:
        """Something else in the place of an expression."""
        return Patch(start=self.start(node), end=self.end(node), new=written)

    def _written(self, lines: tuple[str, ...], indent: str) -> str:
        newline = line_break(self.text)
        return "".join(f"{indent}{line}{newline}" for line in lines)

    def _at(self, line: int, column: int) -> int:
        text = self._lines[line - 1] if line <= len(self._lines) else ""
        return self._starts[line - 1] + len(text.encode()[:column].decode(errors="ignore"))
