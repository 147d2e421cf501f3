"""What torch trainings of these tests import, once for all: one process has it, and forks their ranks."""

IMPORTS = (
    *("torch.distributed", "torch.nn.parallel", "torch.utils.data.distributed", "torch.distributed.fsdp"),
    *("torch.distributed.tensor.parallel", "torch.testing._internal.distributed.fake_pg"),
    # These come with the first optimizer, and with the first compiled model.
    *("torch._dynamo", "torch._inductor.compile_fx"),
)
