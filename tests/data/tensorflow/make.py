"""Write the small TensorFlow checkpoints beside this file anew. Made with tensorflow-cpu 2.21.0.

python tests/data/tensorflow/make.py
"""

import os
from pathlib import Path

import tensorflow as tf

v1 = tf.compat.v1


def save_objects() -> None:
    """TensorFlow 2: a CheckpointManager that counts saves, a step that counts updates."""
    weight = tf.Variable(tf.range(6, dtype=tf.float32))
    step = tf.Variable(1215, dtype=tf.int64)
    names = tf.Variable(["left", "right"])
    saved = tf.train.Checkpoint(weight=weight, step=step, names=names)
    manager = tf.train.CheckpointManager(saved, "objects", max_to_keep=2)
    manager.save()
    step.assign_add(5)
    manager.save()


def save_shards() -> None:
    """TensorFlow 1: a Saver with ``global_step`` in the name, one shard for each of two devices."""
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        with tf.device("/cpu:0"):
            v1.get_variable("half", initializer=tf.ones([3], tf.float16))
        with tf.device("/cpu:1"):
            v1.get_variable("whole", initializer=tf.range(5))
        with v1.Session(config=v1.ConfigProto(device_count={"CPU": 2})) as session:
            session.run([v1.global_variables_initializer(), step.assign(1000)])
            v1.train.Saver(sharded=True).save(
                session, "shards/model.ckpt", global_step=step, write_meta_graph=False
            )


if __name__ == "__main__":
    os.chdir(Path(__file__).parent)
    save_objects()
    Path("shards").mkdir(exist_ok=True)
    save_shards()
