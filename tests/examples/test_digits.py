"""The examples are tested with the digits of a stand-in for scikit-learn: they are the same."""

import numpy as np
import pytest

from support.light.sklearn import datasets as light


def test_the_stand_in_for_scikit_learn_has_its_digits() -> None:
    theirs = pytest.importorskip("sklearn.datasets").load_digits()
    ours = light.load_digits()
    for name in ("data", "images", "target"):
        mine, wanted = getattr(ours, name), theirs[name]
        assert mine.dtype == wanted.dtype
        assert np.array_equal(mine, wanted)
