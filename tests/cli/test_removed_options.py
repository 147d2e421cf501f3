"""An option whose feature is gone ends with 64 and says what to use; it is never taken for a mistyped one."""

from pathlib import Path

import pytest

from faultrun.cli.app import program
from faultrun.cli.options.settings import OPTIONS, Asked, collect
from faultrun.cli.removed_options import REMOVED_OPTIONS
from faultrun.errors import ConfigError, UsageError

OF_A_RUN = [option for option in REMOVED_OPTIONS if "--" not in option]


@pytest.mark.parametrize("option", REMOVED_OPTIONS)
def test_a_removed_option_is_refused_with_what_to_use(option: str) -> None:
    verb, _, name = option.rpartition("--")
    words = [*verb.split(), f"--{name}", "train.py"]
    with pytest.raises(UsageError) as refused:
        program().main(words, "faultrun", standalone_mode=False)
    error = refused.value
    assert (error.exit_code, error.what) == (64, f"--{name} is no option any more")
    assert (error.because, error.hint) == REMOVED_OPTIONS[option]


@pytest.mark.parametrize("option", OF_A_RUN)
def test_its_variable_is_refused_where_it_says_something(option: str) -> None:
    variable = f"FAULTRUN_{option.upper()}"
    asked = Asked(options={}, words=("train.py",))
    collect(asked, {variable: " "})
    with pytest.raises(UsageError, match=f"^{variable} is no option any more"):
        collect(asked, {variable: "x"})


@pytest.mark.parametrize("option", OF_A_RUN)
def test_its_key_in_a_config_file_is_refused_as_any_that_is_no_option(option: str, tmp_path: Path) -> None:
    file = tmp_path / "faultrun.yaml"
    file.write_text(f"worker_num: 2\n{option}: x\n")
    with pytest.raises(ConfigError) as refused:
        collect(Asked(options={"config": (str(file),)}, words=("train.py",)), {})
    assert refused.value.what == f"{file}:2 {option} is no option any more"
    assert refused.value.hint == REMOVED_OPTIONS[option][1]


def test_no_option_is_removed_and_there() -> None:
    assert not OPTIONS.keys() & REMOVED_OPTIONS.keys()
