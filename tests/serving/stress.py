"""Many requests at once to one SavedModel. By hand: `stress.py FOLDER SIGNATURE`."""

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
    """Batches of 1 to 16 texts, short to long, odd or blank among them."""
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


def ask(signature, request):
    found = signature(tf.constant(request))
    return {name: value.numpy() for name, value in sorted(found.items())}


def ask_at_once(signature, requests, threads=8):
    """All answers, and the resident memory in bytes after each, as they came."""
    memory = []

    def one(request):
        answer = ask(signature, request)
        memory.append(resident_bytes())
        return answer

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, requests)), memory


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(memory):
    """Bytes from the first to the last fifth of the last half, medians of each."""
    half = memory[len(memory) // 2 :]
    fifth = max(1, len(half) // 5)
    return float(np.median(half[-fifth:]) - np.median(half[:fifth]))


def differences(answers, expected):
    """How many requests got another text or another score."""
    return sum(
        not all(
            np.array_equal(answer[name], other[name])
            if other[name].dtype == object
            else np.allclose(answer[name], other[name], rtol=1e-5)
            for name in other
        )
        for answer, other in zip(answers, expected, strict=True)
    )


if __name__ == "__main__":
    import tensorflow_text  # noqa: F401 (registers the ops)

    signature = tf.saved_model.load(sys.argv[1]).signatures[sys.argv[2]]
    requests = random_requests(500)
    start = time.perf_counter()
    expected = []
    for i, request in enumerate(requests):
        expected.append(ask(signature, request))
        if i % 50 == 49:
            seconds = time.perf_counter() - start
            print(f"one thread: {i + 1} requests, {seconds:.1f} s,", end=" ")
            print(f"{resident_bytes() / 2**20:.0f} MiB")
    for _ in range(3):
        start = time.perf_counter()
        answers, memory = ask_at_once(signature, requests)
        print(
            f"8 threads: {time.perf_counter() - start:.1f} s, "
            f"{differences(answers, expected)} differ, resident "
            f"{memory[0] / 2**20:.0f} to {memory[-1] / 2**20:.0f} MiB, last half "
            f"{growth(memory) / 2**20:+.2f} MiB"
        )
