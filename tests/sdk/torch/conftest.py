"""A process group of one rank, for tests that name it in ``pytest.mark.usefixtures``."""

from collections.abc import Iterator

import pytest


@pytest.fixture
def group_of_one() -> Iterator[None]:
    """Collectives of the group reach nobody else."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
