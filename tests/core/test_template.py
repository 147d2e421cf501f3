"""Templates: what their fields become, and what is no template."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.core.template import FIELDS, Values, literal, parse, render, rendered_value
from faultrun.errors import ConfigError

VALUES = Values(
    checkpoint="/c/rank_0/net-2_5.ckpt", run_id="job", incarnation=1, epoch=2, step=5, global_step=30, rank=7
)


def test_every_field_of_the_contract_is_filled_in() -> None:
    text = "|".join(f"{{{name}}}" for name in FIELDS)
    path = "/c/rank_0/net-2_5.ckpt"
    assert render(parse(text), VALUES) == f"{path}|{path}|/c/rank_0|net-2_5.ckpt|2|5|30|7|job|1"
    assert parse(text).fields == frozenset(FIELDS)


@given(st.text())
def test_doubled_braces_are_the_braces_themselves(text: str) -> None:
    assert render(parse(text.replace("{", "{{").replace("}", "}}")), VALUES) == text


@given(st.text(alphabet="{}ab"))
def test_any_text_is_a_template_or_refused_with_a_reason(text: str) -> None:
    try:
        parse(text)
    except ConfigError as refused:
        assert "{" in text or "}" in text
        assert refused.exit_code == 78


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("{checkpiont}", "there is no field {checkpiont}"),
        ("{}", "there is no field {}"),
        ("a{", "the brace at position 2 stands alone"),
        ("a}b", "the brace at position 2 stands alone"),
        ("{epoch!r}", "there is no field {epoch!r}"),
        ("{epoch:03d}", "there is no field {epoch:03d}"),
    ],
)
def test_an_unknown_field_or_a_lone_brace_is_refused(text: str, because: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert caught.value.because == because


def test_a_field_that_nobody_knows_is_an_error_and_not_the_word_none() -> None:
    with pytest.raises(ConfigError) as caught:
        render(parse("{checkpoint}@{epoch}"), Values(checkpoint="/c", run_id="r", incarnation=0))
    assert caught.value.because == "{epoch} is not known here"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("{epoch}", 2), ("{rank}", 7), ("epoch {epoch}", "epoch 2")),
        *(("{checkpoint}", "/c/rank_0/net-2_5.ckpt"), ("{run_id}", "job")),
        *(("1", 1), ("-3", -3), ("0.5", 0.5), ("true", True), ("False", False)),
        *(("007", "007"), ("1e5", "1e5"), ("", "")),
    ],
)
def test_a_value_has_the_type_that_its_template_means(text: str, value: str) -> None:
    found = rendered_value(parse(text), VALUES)
    assert found == value
    assert type(found) is type(value)


def test_a_checkpoint_that_happens_to_be_a_number_stays_text() -> None:
    values = Values(checkpoint="7", run_id="8", incarnation=0)
    assert rendered_value(parse("{checkpoint}"), values) == "7"
    assert rendered_value(parse("{run_id}"), values) == "8"


@pytest.mark.parametrize(
    ("checkpoint", "directory"), [("/a/b", "/a"), ("a", "."), ("/a", "/"), ("./a/b/", "./a"), ("a/b", "a")]
)
def test_the_directory_is_what_holds_the_checkpoint(checkpoint: str, directory: str) -> None:
    assert Values(checkpoint=checkpoint, run_id="r", incarnation=0).checkpoint_dir == directory


def test_a_checkpoint_that_is_a_directory_is_its_own_directory() -> None:
    values = Values(checkpoint="out/checkpoint-20", run_id="r", incarnation=0, is_directory=True)
    assert render(parse("{checkpoint_dir}"), values) == "out/checkpoint-20"


def test_a_file_is_its_own_file_and_a_directory_is_none() -> None:
    wanted = parse("--from={checkpoint_file}")
    assert render(wanted, Values(checkpoint="out/a.ckpt", run_id="r", incarnation=0)) == "--from=out/a.ckpt"
    with pytest.raises(ConfigError) as caught:
        render(wanted, Values(checkpoint="out/checkpoint-20", run_id="r", incarnation=0, is_directory=True))
    assert caught.value.because == "the checkpoint out/checkpoint-20 is a directory"


def test_what_a_person_types_is_read_as_they_mean_it() -> None:
    assert literal("TRUE") is True
    assert literal("+5") == 5
    assert literal("/path") == "/path"
