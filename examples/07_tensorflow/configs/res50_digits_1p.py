"""The configuration of one training: Python, imported by name, as ResNet-50 for TensorFlow has them."""

config = {
    # ============================ DATA AND OPTIMIZER
    'num_classes': 10,
    'batch_size': 32,
    'learning_rate': 0.05,
    'momentum': 0.9,
    'max_epochs': 6,                 # the last epoch, also when training was resumed
    'save_checkpoints_steps': 10,
    'keep_checkpoint_max': 3,
    'seed': 1,

    # ============================ RECOVERY
    # A directory with checkpoints to go on from; empty: start from the beginning.
    'restore_path': '',
}  # fmt: skip


def res50_config() -> dict[str, object]:
    config["do_checkpoint"] = True
    return config
