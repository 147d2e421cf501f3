"""What is piped into faultrun is not lost in silence."""

import os
import tempfile

import pytest

from faultrun.cli.resolve.standard_input import is_given


def test_bytes_in_a_pipe_or_a_file_are_seen_and_stay_there() -> None:
    read, write = os.pipe()
    assert not is_given(read), "a pipe that is merely open, as under srun or ssh"
    os.write(write, b"line")
    assert is_given(read)
    assert os.read(read, 9) == b"line"
    with tempfile.TemporaryFile() as file:
        assert not is_given(file.fileno())
        file.write(b"text")
        file.flush()
        assert not is_given(file.fileno()), "it was read to its end"
        file.seek(0)
        assert is_given(file.fileno())
    os.close(read)
    assert not is_given(read)
    os.close(write)


@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero"])
def test_a_device_gives_nothing(device: str) -> None:
    with open(device, "rb") as file:  # noqa: PTH123  its descriptor is meant
        assert not is_given(file.fileno())
