"""Where faultrun did not start the process the SDK does nothing, and refuses nothing."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from faultrun import sdk

ANYTHING: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.integers(), st.floats(), st.text(), st.binary(), st.tuples(st.integers()), st.just(object())
)


@given(first=ANYTHING, second=ANYTHING, third=ANYTHING)
def test_whatever_it_is_given_no_call_raises(first: Any, second: Any, third: Any) -> None:
    assert sdk.resume() is None
    folder = sdk.Folder(directory=first, keep=second, replica_group=third)
    sdk.start(save=first, directory=second, name=third)
    sdk.start(save=print, directory=folder, name=third)
    sdk.step(first, second)
    with sdk.updating(), sdk.phase(first):
        assert not sdk.should_stop()
    sdk.done(ends_within_s=first)
