"""What cannot be meant is refused in every format with the reason; what all formats share, once."""

import pytest

from faultrun.configs.editors.registry import edit
from faultrun.errors import ConfigError


@pytest.mark.parametrize(
    ("file", "text", "key", "because"),
    [
        ("c.json", b'{"a": 1, "b": {"a": 2}, "a": 3}', "a", "twice: line 1"),
        ("c.json", b'{"a": 1,}', "a", "line 1: "),
        ("c.json", b'{"a": 1} // note', "a", "line 1: "),
        ("c.json", b'{"a": {"b": 1}}', "a", "it holds an object, not a value"),
        ("c.json", b'{"a": 1}', "1#a", "JSON has one document"),
        ("c.json", b"", "a", "line 1: "),
        ("c.json", b"[" * 100_000, "a", "it is nested too deeply"),
        ("c.toml", b"a = 1\na = 2", "a", "there twice"),
        ("c.toml", b"a = 1 2", "a", "line 1"),
        ("c.toml", b"[t]\na = 1", "t", "it holds a table, not a value"),
        ("c.toml", b"a = [1]", "a", "it holds a list, not a value"),
        ("c.toml", b"a = [1]", "a[1]", "1 is not a position in that list"),
        ("c.toml", b"[t.u]\na = 1", "t.new", "there is no 't' to look into"),
        ("c.toml", b"a = 1", "b.c", "there is no 'b' to look into"),
        ("c.toml", b"a = 1", "1#a", "TOML has one document"),
        ("c.ini", b"[s]\na = 1\nA: 2\n", "s.a", "twice: lines 2, 3"),
        ("c.ini", b"[s]\na = 1\n", "a", "an option is named with its section"),
        ("c.ini", b"[s]\na = 1\n", "t.a", "there is no 't' to look into"),
        ("c.ini", b"[s]\n = 1\n", "s.a", "line 2"),
        ("c.ini", b"[a]\nb.c = 1\n[a.b]\nc = 2\n", "a.b.c", "may mean several options"),
        ("c.ini", b"[s]\na = 1\n", "1#s.a", "INI has one document"),
        ("c.py", b"a = 1\na = 2\n", "a", "twice: lines 1, 2"),
        ("c.py", b"x = {'a': 1}\ny = {'a': 2}\n", "a", "may mean several values: lines 1, 2"),
        ("c.py", b"a = b = 1\n", "a", "line 1 gives one value to 2 names"),
        ("c.py", b"a = {'b': 1}\n", "a", "it holds a dictionary, not a value"),
        ("c.py", b"a = [1, 2]\n", "a", "it holds a list, not a value"),
        ("c.py", b"a = dict(b=1)\n", "a", "it holds a dictionary, not a value"),
        ("c.py", b"def f(a=1):\n    pass\n", "a", "nothing in it is named a"),
        ("c.py", b"a = \n", "a", "line 1: "),
        ("c.py", b"# coding: nonsense\na = 1\n", "a", "unknown encoding"),
        ("c.py", b"a = 1\n", "1#a", "Python has one document"),
        ("a.sh", b"A=1\nif x; then\n  A=2\nfi\n", "A", "twice: lines 1, 3"),
        (".env", b"A=1\nA=2\n", "A", "twice: lines 1, 2"),
        ("a.sh", b"A+=1\n", "A", "adds to what is there"),
        ("a.sh", b'A="1\n', "A", 'line 1: " is not closed'),
        (".env", b"B=1\nA='1\n", "A", "line 2: the quote is not closed"),
        (".env", b"A=1\n", "A.b", "is not the name of a variable"),
        ("a.sh", b"A=1\n", "1#A", "is not the name of a variable"),
        ("a.sh", b"PARTS=(a b)\n", "PARTS", "sets an array"),
        ("a.sh", b"A=1\necho $A\n", "NEW", "the script does not set NEW"),
    ],
)
def test_what_cannot_be_meant_is_refused(file: str, text: bytes, key: str, because: str) -> None:
    with pytest.raises(ConfigError) as caught:
        edit(file, text, key, "x")
    assert because in caught.value.because
    assert caught.value.exit_code == 78
