"""A script as words and operators: nothing is lost between them, and nothing in quotes is an operator."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.text.patch import MalformedText
from faultrun.text.shell import Operator, Word, tokens


def test_words_and_operators_come_in_order_without_comments_and_here_documents() -> None:
    script = """\
A='x y' run "$(date)" \\
  --to=a\\ b >log 2>&1 && echo ${B:-;} # done; now
cat <<-END
\tno words;
\tEND
end
"""
    assert [token.text for token in tokens(script)] == [
        *("A='x y'", "run", '"$(date)"', "--to=a\\ b", ">", "log", "2", ">&", "1", "&&", "echo", "${B:-;}"),
        *("\n", "cat", "<<-END", "\n", "end", "\n"),
    ]
    assert all(script[token.start : token.end] == token.text for token in tokens(script))


def test_what_is_quoted_is_blank_in_a_bare_word() -> None:
    (word,) = tokens("a'b'\"$(c)\"\\d${e}`f`")
    assert isinstance(word, Word)
    assert word.bare == "a___" + "______" + "__" + "${e}`f`"


def test_a_redirection_is_told_from_the_end_of_a_command() -> None:
    found = [token for token in tokens("a &> b & c | d < e || f\n") if isinstance(token, Operator)]
    assert [(one.text, one.redirects) for one in found] == [
        ("&>", True),
        ("&", False),
        ("|", False),
        ("<", True),
        ("||", False),
        ("\n", False),
    ]


@pytest.mark.parametrize("script", ["a 'b", 'a "b', "a $(b", "a ${b", "a `b", 'a "$(b)'])
def test_what_is_not_closed_is_refused_with_its_line(script: str) -> None:
    with pytest.raises(MalformedText) as refused:
        list(tokens(f"# first\n{script}\n"))
    assert refused.value.line == 2


@given(st.text(alphabet="ab '\"\\$(){}`;&|<>#\n\t=", max_size=30))
def test_any_script_is_taken_apart_at_places_that_are_in_it(script: str) -> None:
    try:
        found = list(tokens(script))
    except MalformedText as error:
        assert 1 <= error.line <= script.count("\n") + 1
        return
    ends = [0, *(token.end for token in found)]
    assert all(before <= token.start < token.end for before, token in zip(ends, found, strict=False))


@pytest.mark.parametrize("script", ["a 'b c' \"d e\" f\\ g", "x=1 'y''z' \"\"", "it\\'s \"a 'b'\" 'c \"d\"'"])
def test_words_are_the_shells_own(script: str) -> None:
    told = subprocess.run(
        ["bash", "-c", f"set -- {script}; echo $#"], capture_output=True, text=True, check=True, timeout=20
    )
    assert sum(isinstance(token, Word) for token in tokens(script)) == int(told.stdout)
