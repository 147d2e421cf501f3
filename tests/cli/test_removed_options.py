"""An option whose feature is gone ends with 64 and says what to use; it is never taken for a mistyped one."""

import pytest

from faultrun.cli.app import program
from faultrun.cli.removed_options import REMOVED_OPTIONS
from faultrun.errors import UsageError


@pytest.mark.parametrize("option", REMOVED_OPTIONS)
def test_a_removed_option_is_refused_with_what_to_use(option: str) -> None:
    verb, _, name = option.rpartition("--")
    words = [*verb.split(), f"--{name}", "train.py"]
    with pytest.raises(UsageError) as refused:
        program().main(words, "faultrun", standalone_mode=False)
    error = refused.value
    assert (error.exit_code, error.what) == (64, f"--{name} is no option any more")
    assert (error.because, error.hint) == REMOVED_OPTIONS[option]
