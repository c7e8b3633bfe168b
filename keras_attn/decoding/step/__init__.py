"""The model of one decoding step, derived from a training model."""
