"""However the buckets of two ranks lie, their collectives meet, and each gradient is added up once."""

from hypothesis import given
from hypothesis import strategies as st

from faultrun.sdk.torch.group.ddp import Layout, Matching


@st.composite
def layouts(draw: st.DrawFn, parameters: int) -> Layout:
    order = draw(st.permutations(range(parameters)))
    cuts = sorted(draw(st.sets(st.integers(1, max(1, parameters - 1)), max_size=4)))
    pieces = [order[a:b] for a, b in zip([0, *cuts], [*cuts, parameters], strict=True)]
    return tuple(tuple(piece) for piece in pieces if piece)


@st.composite
def two_layouts(draw: st.DrawFn) -> tuple[Layout, Layout]:
    parameters = draw(st.integers(1, 8))
    return draw(layouts(parameters)), draw(layouts(parameters))


def reduced(canonical: Layout | None, own: Layout) -> Layout:
    """The buckets that a rank with its ``own`` layout reduces, in order."""
    matching = Matching(canonical)
    at_once = tuple(bucket for bucket in own if matching.comes(bucket))
    assert matching.layout == own
    return at_once + matching.left()


@given(two_layouts())
def test_every_rank_reduces_the_canonical_buckets_in_their_order(both: tuple[Layout, Layout]) -> None:
    canonical, own = both
    assert reduced(canonical, own) == canonical


@given(two_layouts())
def test_where_there_is_no_canonical_layout_the_own_is_taken_as_it_is(both: tuple[Layout, Layout]) -> None:
    assert reduced(None, both[0]) == both[0]


def test_buckets_that_lie_alike_are_not_waited_for() -> None:
    matching = Matching(((3, 2), (1,), (0,)))
    assert [matching.comes(bucket) for bucket in ((3, 2), (0, 1))] == [True, False]
    assert matching.left() == ((1,), (0,))


def test_gradients_for_other_parameters_are_an_error_and_not_a_hang() -> None:
    matching = Matching(((0, 1), (2,)))
    matching.comes((0,))
    matching.comes((2,))
    try:
        matching.left()
    except ValueError as error:
        assert "other parameters" in str(error)
    else:
        raise AssertionError("a parameter is missing")
