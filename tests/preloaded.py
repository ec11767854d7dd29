"""What scripts take seconds to import, for the process that they fork from."""

import jieba
import sentencepiece  # noqa: F401
import tensorflow.compat.v1 as tf

_ = tf.estimator.tpu, tf.layers, tf.lite  # loaded at first use
jieba.setLogLevel("WARNING")
jieba.initialize()
