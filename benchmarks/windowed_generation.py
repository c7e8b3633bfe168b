"""Time per token and memory of long generation, with and without a sliding window.

    python benchmarks/windowed_generation.py [--tokens 10000]

A decoder with 4 layers of width 256, rotary positions and random weights generates
token by token (`decoding.stream`) with batch size 1. With a sliding window of 256, the
KV cache of each layer is a ring buffer of 256 positions; without one, it has a position
for each token, and each step attends to all previous tokens. For each tenth of the
tokens, prints the median milliseconds per token and the resident memory of the process.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

from memory import status

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

WINDOW, WIDTH, HEADS, DEPTH, VOCABULARY = 256, 256, 8, 4, 1000


def build(window):
    """Return a decoder with a sliding window, or without one if it is None."""
    import keras

    from keras_attn import layers

    keras.utils.set_random_seed(0)
    embedding = layers.TokenEmbedding(VOCABULARY, WIDTH, padding_id=None)
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    x = embedding(token_ids)
    for _ in range(DEPTH):
        attention = layers.MultiHeadSelfAttention(
            HEADS, position=layers.RotaryPositionEmbedding(), sliding_window=window
        )
        x = layers.TransformerDecoder(
            4 * WIDTH, HEADS, attention=attention, normalize_first=True
        )(x)
    return keras.Model(token_ids, embedding(x, reverse=True))


def measure(window, tokens):
    """Generate tokens; print a row for each tenth of them."""
    from keras_attn import decoding

    model, seconds = build(window), []
    start = time.perf_counter()
    name = "none" if window is None else window
    for token in decoding.stream(
        model,
        [[5, 6, 7]],
        end_token_id=VOCABULARY - 1,
        max_new_tokens=tokens,
        min_new_tokens=tokens,
    ):
        del token
        seconds.append(time.perf_counter() - start)
        start = time.perf_counter()
        if len(seconds) % (tokens // 10) == 0:
            median = statistics.median(seconds[-(tokens // 10) :]) * 1e3
            resident = status("VmRSS") / 2**20
            print(f"| {name} | {len(seconds)} | {median:.2f} | {resident:.0f} |")
            sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--window", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.window is not None:
        measure(int(arguments.window) or None, arguments.tokens)
        return
    print("| window | tokens | ms per token | resident MB |\n|---|---|---|---|")
    for window in WINDOW, 0:
        options = ["--window", str(window), "--tokens", str(arguments.tokens)]
        subprocess.run([sys.executable, __file__, *options], check=True)


if __name__ == "__main__":
    main()
