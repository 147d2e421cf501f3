"""Whatever a value holds, ``faultrun.yaml`` reads back as the same."""

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from faultrun.adopt.proposal import yaml_value
from faultrun.text.yaml_reader import read
from faultrun.text.yaml_tree import MappingNode, ScalarNode

ODD = [
    *("a\nb", "a\n", "\t", "", " a ", "#", "a: b", "yes"),
    *("2024-01-01", "1_0", "010", "1e3", ".5", ".inf", "é\x85", "~"),
]


@given(
    st.lists(st.one_of(st.sampled_from(ODD), st.text(st.characters(exclude_categories=["Cs"]))), min_size=1)
)
@example(ODD)
@example(["True"])
@example(["\U0001f600\ufeff\u2028\x7f\x00"])
def test_a_list_reads_back_identical(values: list[str]) -> None:
    found = yaml.safe_load(f"x: {yaml_value(values, 'checkpoint_dir')}  # where\n")["x"]
    assert found == (values if len(values) > 1 else values[0])


@pytest.mark.parametrize("value", [*ODD, "4", "0.5", "0", "00", "two\nlines", '"', "\\n"])
def test_one_value_reads_back_identical(value: str) -> None:
    text = f"x: {yaml_value([value], 'log_dir')}  # where\n"
    assert str(yaml.safe_load(text)["x"]) == value
    (root,) = read(text).roots
    assert isinstance(root, MappingNode)
    found = root.get("x")
    assert isinstance(found, ScalarNode)
    assert found.value == value


def test_a_switch_stays_a_switch() -> None:
    assert (yaml_value(["True"], "tee"), yaml_value(["false"], "tee")) == ("true", "false")
