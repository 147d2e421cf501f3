"""Fault tolerance for ``transformers.Trainer``: one more callback.

    gasp = sdk.transformers.DyingGasp()
    trainer = Trainer(..., callbacks=[gasp])
    trainer.train(resume_from_checkpoint=gasp.checkpoint)

``gasp.checkpoint`` is the folder that faultrun chose, and None without faultrun and at the first start. A
script that takes ``--resume_from_checkpoint`` keeps its line: ``faultrun --recipe=transformers`` fills it in.
"""

from faultrun.sdk.transformers.callback import TrainerGasp as DyingGasp

__all__ = ["DyingGasp"]
