"""`tf.data` pipelines from texts to batches of token ids."""
