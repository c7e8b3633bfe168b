"""Time per token and memory of a text that grows long, with a window and without.

    python benchmarks/windowed_generation.py [--tokens 10000]

A decoder of 4 layers, 256 wide, rotary positions, random weights, batch 1, written to
token by token (`decoding.stream`). With a window of 256 each layer's cache is a ring of
256 entries; without, it has room for all tokens, and each step attends to all that
came. Prints, for each tenth of the text, milliseconds per token (median), and the
resident memory of the process at its end.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

from memory import status

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

WINDOW, WIDTH, HEADS, DEPTH, WORDS = 256, 256, 8, 4, 1000


def build(window):
    import keras

    from keras_attn import layers

    keras.utils.set_random_seed(0)
    embedding = layers.TokenEmbedding(WORDS, WIDTH, padding_id=None)
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = embedding(ids)
    for _ in range(DEPTH):
        attention = layers.MultiHeadSelfAttention(
            HEADS, position=layers.RotaryPositionEmbedding(), sliding_window=window
        )
        x = layers.TransformerDecoder(
            4 * WIDTH, HEADS, attention=attention, normalize_first=True
        )(x)
    return keras.Model(ids, embedding(x, reverse=True))


def write(window, tokens):
    """Prints a row for each tenth of the text."""
    from keras_attn import decoding

    model, stamps = build(window), []
    start = time.perf_counter()
    name = "all" if window is None else window
    for token in decoding.stream(
        model,
        [[5, 6, 7]],
        end_token_id=WORDS - 1,
        max_new_tokens=tokens,
        min_new_tokens=tokens,
    ):
        del token
        stamps.append(time.perf_counter() - start)
        start = time.perf_counter()
        if len(stamps) % (tokens // 10) == 0:
            median = statistics.median(stamps[-(tokens // 10) :]) * 1e3
            resident = status("VmRSS") / 2**20
            print(f"| {name} | {len(stamps)} | {median:.2f} | {resident:.0f} |")
            sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--window", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.window is not None:
        write(int(arguments.window) or None, arguments.tokens)
        return
    print("| window | tokens so far | ms per token | resident MB |\n|---|---|---|---|")
    for window in WINDOW, 0:
        options = ["--window", str(window), "--tokens", str(arguments.tokens)]
        subprocess.run([sys.executable, __file__, *options], check=True)


if __name__ == "__main__":
    main()
