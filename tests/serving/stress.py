"""Concurrent requests to one SavedModel.

To run it as a script: `stress.py FOLDER SIGNATURE`.
"""

import concurrent.futures
import os
import sys
import time

import numpy as np
import tensorflow as tf

PIECES = [
    "나는 학교에 간다. ",
    "고양이가 ",
    "a",
    "I go to school. ",
    "😀👩‍👩‍👧",
    "e\u0301\u200d\u202e",
    "\u2581 \t\n",
    "\x00",
]


def random_requests(count, seed=0):
    """Return batches of 1 to 16 texts: short, long, blank and invalid ones."""
    rng = np.random.default_rng(seed)

    def text():
        kind = rng.integers(12)
        if kind == 0:
            return [b"", b" ", b" \t \n"][rng.integers(3)]
        if kind == 1:
            return rng.bytes(rng.integers(1, 40))  # not UTF-8, most likely
        length = rng.integers(1, [3, 8, 30][rng.integers(3)])
        return "".join(rng.choice(PIECES, length)).encode()

    return [[text() for _ in range(rng.integers(1, 17))] for _ in range(count)]


def run(signature, request):
    outputs = signature(tf.constant(request))
    return {name: value.numpy() for name, value in sorted(outputs.items())}


def run_concurrently(signature, requests, threads=8):
    """Return the outputs of all requests and the resident bytes after each."""
    memory = []

    def one(request):
        outputs = run(signature, request)
        memory.append(resident_bytes())
        return outputs

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, requests)), memory


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(memory):
    """Return the growth in bytes within the second half of the requests.

    It is the difference of the medians of the first and the last fifth of that half.
    """
    half = memory[len(memory) // 2 :]
    fifth = max(1, len(half) // 5)
    return float(np.median(half[-fifth:]) - np.median(half[:fifth]))


def count_differences(outputs, expected):
    """Return the number of requests whose texts or scores are not the expected ones."""
    return sum(
        not all(
            np.array_equal(output[name], other[name])
            if other[name].dtype == object
            else np.allclose(output[name], other[name], rtol=1e-5)
            for name in other
        )
        for output, other in zip(outputs, expected, strict=True)
    )


if __name__ == "__main__":
    import tensorflow_text  # noqa: F401 (registers the ops)

    signature = tf.saved_model.load(sys.argv[1]).signatures[sys.argv[2]]
    requests = random_requests(500)
    start = time.perf_counter()
    expected = []
    for i, request in enumerate(requests):
        expected.append(run(signature, request))
        if i % 50 == 49:
            seconds = time.perf_counter() - start
            print(f"one thread: {i + 1} requests, {seconds:.1f} s,", end=" ")
            print(f"{resident_bytes() / 2**20:.0f} MiB")
    for _ in range(3):
        start = time.perf_counter()
        outputs, memory = run_concurrently(signature, requests)
        print(
            f"8 threads: {time.perf_counter() - start:.1f} s, "
            f"{count_differences(outputs, expected)} differ, resident "
            f"{memory[0] / 2**20:.0f} to {memory[-1] / 2**20:.0f} MiB, last half "
            f"{growth(memory) / 2**20:+.2f} MiB"
        )
