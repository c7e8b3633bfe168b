"""Greedy decoding without a cache, in NumPy: what `generate` is compared with."""

import keras
import numpy as np


def greedy(model, inputs, prompt, end_token_id, max_length):
    """Token ids `(B, L)`, scores `(B,)` and lengths `(B,)`."""
    rows, prompt_length = prompt.shape
    # Of one length in all steps, so that nothing is compiled anew: what is not
    # written yet is not seen either.
    target = np.zeros((rows, prompt_length + max_length), "int32")
    target[:, :prompt_length] = prompt
    token_ids = np.zeros((rows, max_length), "int32")
    scores, lengths = np.zeros(rows), np.zeros(rows, "int32")
    finished = np.zeros(rows, bool)
    for position in range(max_length):
        logits = model({**inputs, "target": target}, training=False)
        last = prompt_length + position - 1
        logits = keras.ops.convert_to_numpy(logits)[:, last].astype("float64")
        log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        for row in np.flatnonzero(~finished):
            token = log_probabilities[row].argmax()
            token_ids[row, position] = token
            scores[row] += log_probabilities[row, token]
            lengths[row] += 1
            finished[row] = token == end_token_id
        if finished.all():
            break
        target[:, last + 1] = token_ids[:, position]
    return token_ids, scores, lengths
