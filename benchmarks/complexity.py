"""Growth of time and memory of three kinds of layers with length n and width d.

    python benchmarks/complexity.py [--quick] [--plots docs] [--jit]

The layers map n x d to n x d: `MultiHeadSelfAttention` with 8 heads,
`keras.layers.GRU`, and `keras.layers.Conv1D` with kernel size 3. The two parts of the
first are measured as well: attention alone, `ops.dot_product_attention`, and the four
projections of query, key, value and output. One sequence of random numbers, float32, on
the CPU. Attention uses the "full" kernel, which computes all weights at once
(`long_attention.py` measures the blockwise kernel). `forward` computes the output,
`training` the gradients of its sum with respect to the weights and inputs. The softmax
over n x n scores per head is not a matrix product, and its cost depends on n only.

Time is the median over several rounds, in which the layers alternate. Memory is the
peak resident memory of the process during the call minus that before the call, each in
a new process; for the recurrent layer it is the median of three processes. Exponents
are from a least-squares fit of `log(time) = a log n + b log d + c` over the larger half
of the lengths and of the widths.

Sequential operations are the longest chain of matrix products in the layer's graph, in
which each takes the result of the previous one.

    pip install matplotlib   # for --plots
"""

import argparse
import concurrent.futures
import functools
import math
import multiprocessing
import os
import pathlib
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from memory import release_memory, reset_peak, status

from keras_attn import layers, ops

tf.get_logger().setLevel("ERROR")  # a wrong warning about retracing

HEADS, KERNEL = 8, 3
LENGTHS = [64, 128, 256, 512, 1024, 2048, 4096]
WIDTHS = [64, 128, 256, 512]
STEPS = ["forward", "training"]
# Name -> known complexity, number of multiply-adds of a forward pass, known number of
# sequential operations.
KINDS = {
    "self-attention": (
        "n² d + n d²",
        lambda n, d: 2 * n * n * d + 4 * n * d * d,
        "O(1)",
    ),
    "attention alone": ("n² d", lambda n, d: 2 * n * n * d, "O(1)"),
    "projections": ("n d²", lambda n, d: 4 * n * d * d, "O(1)"),
    "recurrent": ("n d²", lambda n, d: 6 * n * d * d, "O(n)"),
    "convolution": ("k n d²", lambda n, d: KERNEL * n * d * d, "O(1)"),
}
NOISE = 1e6  # bytes; smaller memory differences are not significant


# The layers


def make(kind, d, **options):
    """Return a function from `(1, n, d)` to `(1, n, d)`, and its weights."""
    if kind == "attention alone":

        def attend(x):
            heads = tf.reshape(x, (1, -1, HEADS, d // HEADS))
            # Query, key and value are different tensors, as in a layer.
            query, key, value = heads, heads + 1.0, heads + 2.0
            return ops.dot_product_attention(query, key, value, kernel="full")

        return attend, []
    if kind == "projections":
        query, key, value, output = denses = [keras.layers.Dense(d) for _ in range(4)]
        for dense in denses:
            dense.build((1, None, d))
        weights = [w.value for dense in denses for w in dense.trainable_weights]
        return lambda x: output(query(x) + key(x) + value(x)), weights
    layer = {
        "self-attention": lambda: layers.MultiHeadSelfAttention(
            HEADS, attention_kernel="full"
        ),
        "recurrent": lambda: keras.layers.GRU(d, return_sequences=True, **options),
        "convolution": lambda: keras.layers.Conv1D(d, KERNEL, padding="same"),
    }[kind]()
    layer.build((1, None, d))
    return layer, [weight.value for weight in layer.trainable_weights]


def compiled(kind, step, n, d, jit, **options):
    """Return a `tf.function` of a tensor `(1, n, d)`."""
    forward, weights = make(kind, d, **options)

    def train(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(forward(x))
        return tape.gradient(total, [x, *weights])

    return tf.function(
        forward if step == "forward" else train,
        input_signature=[tf.TensorSpec((1, n, d))],
        jit_compile=jit,
    )


# Measurements, each run in a new process


def seconds_of_calls(step, n, d, jit, rounds, budget):
    """Return the median seconds per call of each kind; the kinds alternate.

    Args:
        budget: float, total seconds after which a kind is not called again.
    """
    x = tf.random.normal((1, n, d))
    calls = {kind: compiled(kind, step, n, d, jit) for kind in KINDS}
    for call in calls.values():
        call(x)
    times = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind, call in calls.items():
            if sum(times[kind]) < budget:
                start = time.perf_counter()
                call(x)
                times[kind].append(time.perf_counter() - start)
    return {kind: statistics.median(values) for kind, values in times.items()}


def bytes_of_call(kind, step, n, d, jit):
    """Return the peak memory of a call in bytes, without the memory before it."""
    call = compiled(kind, step, n if jit else None, d, jit)
    x = tf.random.normal((1, n, d))
    # The first call allocates threads and buffers that persist. It is a small one, as
    # the memory of many small tensors is not returned to the system.
    call(x if jit else tf.random.normal((1, LENGTHS[0], d)))
    matrix = tf.random.normal((1, 1024, 1024))
    tf.nn.softmax(matrix @ matrix)
    del matrix
    release_memory()
    before = reset_peak()
    call(x)
    return max(status("VmHWM") - before, 0)


def longest_chain(kind, n, d=16):
    """Return the number of sequential matrix products in a forward pass."""
    options = {"unroll": True} if kind == "recurrent" else {}
    function = compiled(kind, "forward", n, d, False, **options)
    graph = function.get_concrete_function().graph
    depth = {}
    for operation in graph.get_operations():  # in topological order
        previous = max((depth[t.op.name] for t in operation.inputs), default=0)
        is_product = operation.type in ("MatMul", "BatchMatMulV2", "Conv2D")
        depth[operation.name] = previous + is_product
    return max(depth.values())


def in_new_process(function, *values):
    """Return `function(*values)`, run in a new process; None if the process dies."""
    # The fork server has imported the libraries and nothing more, so that a new process
    # starts quickly.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["keras_attn", "keras", "tensorflow"])
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(function, *values).result()
        except concurrent.futures.process.BrokenProcessPool:
            print(f"A process died: {function.__name__}{values}", file=sys.stderr)
            return None


# Evaluation of measurements: dicts from (kind, step, n, d) to seconds or bytes


def upper_half(sizes):
    """Return the larger half of sizes, at least two."""
    return sizes[min(len(sizes) // 2, len(sizes) - 2) :]


def exponents(measurements, kind, step, lengths, widths, minimum=0.0):
    """Fit the exponents of n and d.

    Measurements up to `minimum` are left out.

    Returns:
        A tuple of both exponents and the largest deviation of the fit, a factor; None
        if there are too few measurements.
    """
    points = [
        (n, d, measurements[kind, step, n, d])
        for n in upper_half(lengths)
        for d in upper_half(widths)
        if measurements[kind, step, n, d] > minimum
    ]
    logs = np.log(np.array(points).reshape(-1, 3))
    terms = np.column_stack([logs[:, :2], np.ones(len(logs))])
    if np.linalg.matrix_rank(terms) < 3:
        return None
    fitted, *_ = np.linalg.lstsq(terms, logs[:, 2], rcond=None)
    return (*fitted[:2], math.exp(np.abs(terms @ fitted - logs[:, 2]).max()))


def crossing(first, second, lengths):
    """Return the length above which the first takes longer, as a string.

    Args:
        first: function from n to a time.
        second: function from n to a time.
        lengths: list of the lengths n to interpolate between.
    """
    ratios = [math.log(first(n) / second(n)) for n in lengths]
    if any(map(math.isnan, ratios)):
        return ""
    if min(ratios) > 0:
        return f"< {lengths[0]}"
    if ratios[-1] <= 0:
        return f"> {lengths[-1]}"
    i = max(i for i, ratio in enumerate(ratios) if ratio <= 0)
    share = ratios[i] / (ratios[i] - ratios[i + 1])
    return f"{lengths[i] * (lengths[i + 1] / lengths[i]) ** share:.0f}"


def row(*cells):
    """Print a row of a Markdown table."""
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def header(*cells):
    """Print the header of a Markdown table."""
    row(*cells)
    print("|---" * len(cells) + "|", flush=True)


def number(value, scale):
    """Return a scaled number as text, empty for NaN."""
    return "" if math.isnan(value) else f"{value * scale:.3g}"


def measure(arguments, lengths, widths):
    """Measure and print time and memory of all kinds, steps and sizes."""
    seconds, memory = {}, {}
    names = [f"{kind}, {unit}" for unit in ("ms", "MB") for kind in KINDS]
    header("step", "n", "d", *names)
    for step in STEPS:
        for n in lengths:
            for d in widths:
                times = in_new_process(
                    seconds_of_calls,
                    *(step, n, d, arguments.jit, arguments.rounds, arguments.seconds),
                )
                for kind in KINDS:
                    point = kind, step, n, d
                    seconds[point] = math.nan if times is None else times[kind]
                    # The memory of a loop depends on the scheduling of threads.
                    processes = 3 if kind == "recurrent" else 1
                    peaks = [
                        in_new_process(bytes_of_call, *point, arguments.jit)
                        for _ in range(processes)
                    ]
                    memory[point] = statistics.median(
                        math.nan if peak is None else peak for peak in peaks
                    )
                row(
                    *(step, n, d),
                    *(number(seconds[kind, step, n, d], 1e3) for kind in KINDS),
                    *(number(memory[kind, step, n, d], 1e-6) for kind in KINDS),
                )
    return seconds, memory


def print_exponents(seconds, memory, lengths, widths):
    """Print the fitted exponents of time and memory."""
    print(f"\nExponents, n of {upper_half(lengths)}, d of {upper_half(widths)}\n")
    header("step", "layer", "known", "time", "max deviation", "memory", "max deviation")
    for step in STEPS:
        for kind, (known, _, _) in KINDS.items():
            cells = [step, kind, known]
            for measurements, minimum in ((seconds, 0.0), (memory, NOISE)):
                fit = exponents(measurements, kind, step, lengths, widths, minimum)
                cells += ["", ""] if fit is None else fit_cells(*fit)
            row(*cells)


def fit_cells(a, b, factor):
    return f"n^{a:.2f} d^{b:.2f}", f"{factor:.2f}"


def print_crossings(seconds, lengths, widths):
    """Print the lengths above which one kind takes longer than another."""
    pairs = [
        ("self-attention", "recurrent"),
        ("attention alone", "projections"),
        ("attention alone", "convolution"),
    ]
    print("\nLength n above which the first takes longer than the second\n")
    header("step", "d", *(f"{first}, {second}" for first, second in pairs))
    for d in widths:
        cells = []
        for pair in pairs:
            counts = [functools.partial(KINDS[kind][1], d=d) for kind in pair]
            cells.append(crossing(*counts, lengths))
        row("multiplications, forward", d, *cells)
    for step in STEPS:
        for d in widths:
            cells = []
            for pair in pairs:
                times = [lambda n, k=k: seconds[k, step, n, d] for k in pair]  # noqa: B023
                cells.append(crossing(*times, lengths))
            row(f"time, {step}", d, *cells)


def print_chains():
    """Print the numbers of sequential matrix products."""
    lengths = (4, 8, 16)
    print("\nSequential matrix products, forward\n")
    header("layer", *(f"n = {n}" for n in lengths), "known")
    for kind, (_, _, known) in KINDS.items():
        chains = (in_new_process(longest_chain, kind, n) for n in lengths)
        row(kind, *chains, known)


def plot(path, seconds, memory, lengths, widths):
    """Save a plot of time and memory by length and by width."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(13, 7.5), layout="constrained")
    n, d = lengths[-1], widths[-1]
    for i, step in enumerate(STEPS):
        panels = [
            ("n", "ms", f"d = {d}", lengths, lambda size: (size, d), seconds, 1e3),
            ("d", "ms", f"n = {n}", widths, lambda size: (n, size), seconds, 1e3),
            ("n", "MB", f"d = {d}", lengths, lambda size: (size, d), memory, 1e-6),
        ]
        for j, panel in enumerate(panels):
            axis, unit, fixed, sizes, point, measurements, scale = panel
            axes = figure.add_subplot(len(STEPS), len(panels), 3 * i + j + 1)
            for kind, (known, _, _) in KINDS.items():
                values = [measurements[(kind, step, *point(size))] for size in sizes]
                values = np.multiply(values, scale)
                axes.plot(sizes, values, "o-", ms=4, label=f"{kind}: {known}")
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.set_xticks(sizes, map(str, sizes))
            axes.set(xlabel=axis, ylabel=unit, title=f"{step}, {fixed}")
            axes.grid(alpha=0.3)
            if i == j == 0:
                axes.legend(fontsize=8)
    pathlib.Path(path).mkdir(parents=True, exist_ok=True)
    figure.savefig(pathlib.Path(path) / "complexity.png", dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="n up to 512, d up to 128")
    parser.add_argument("--jit", action="store_true", help="compile with XLA")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--seconds",
        type=float,
        default=3.0,
        help="time limit per layer and size",
    )
    parser.add_argument("--plots", metavar="DIR", help="folder of complexity.png")
    arguments = parser.parse_args()
    lengths = [n for n in LENGTHS if n <= 512] if arguments.quick else LENGTHS
    widths = [d for d in WIDTHS if d <= 128] if arguments.quick else WIDTHS
    seconds, memory = measure(arguments, lengths, widths)
    print_exponents(seconds, memory, lengths, widths)
    print_crossings(seconds, lengths, widths)
    print_chains()
    if arguments.plots:
        plot(arguments.plots, seconds, memory, lengths, widths)


if __name__ == "__main__":
    main()
