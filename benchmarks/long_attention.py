"""Attention over long sequences: kernels of keras_attn, Keras, PyTorch and JAX.

    python benchmarks/long_attention.py [--lengths 4096 8192] [--only forward]
    KERAS_BACKEND=jax python benchmarks/long_attention.py --dtype bfloat16

Batch size 1, 8 heads of size 64. For each length, forward and forward with backward:

- the blockwise kernel without and with XLA (`blockwise`, `blockwise, XLA`), and with a
  causal mask or a sliding window of 512;
- `keras.ops.dot_product_attention` and the "full" kernel, without and with XLA;
- PyTorch's `scaled_dot_product_attention` and `jax.nn.dot_product_attention`, if
  installed, each in its own process.

The calls of a backend alternate. A row of the table has the median time in milliseconds
and the peak memory of one call without the memory before it, each measured in a new
process. With `--once`, each call is made once in its own process, and the memory is
that of the process; this is for lengths that take minutes. The backend of the first two
groups is `KERAS_BACKEND` (default: tensorflow). On a GPU, memory is not measured.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from memory import release_memory, reset_peak, status

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

HEADS, HEAD_SIZE, WINDOW = 8, 64, 512

# Name -> backend (None: that of `KERAS_BACKEND`), and options.
CALLS = {
    "keras.ops": (None, dict(library="keras")),
    "keras.ops, XLA": (None, dict(library="keras", jit=True)),
    "full": (None, dict(kernel="full")),
    "full, XLA": (None, dict(kernel="full", jit=True)),
    "blockwise": (None, dict(kernel="blockwise")),
    "blockwise, XLA": (None, dict(kernel="blockwise", jit=True)),
    "blockwise, causal": (None, dict(kernel="blockwise", jit=True, causal=True)),
    "blockwise, window": (
        None,
        dict(kernel="blockwise", jit=True, causal=True, sliding_window=WINDOW),
    ),
    "auto": (None, dict(kernel="auto")),
    "PyTorch": ("torch", dict(library="torch")),
    "JAX": ("jax", dict(library="jax", jit=True)),
}


# Measuring processes


def attention_of(
    backend, library=None, kernel="auto", causal=False, sliding_window=None, **_
):
    """Return an attention function of query, key and value `(1, T, N, H)`."""
    if library == "torch":
        import torch

        def attend(query, key, value):
            # (1, T, N, H) -> (1, N, T, H)
            transposed = [x.transpose(1, 2) for x in (query, key, value)]
            outputs = torch.nn.functional.scaled_dot_product_attention(*transposed)
            return outputs.transpose(1, 2)

        return attend
    if library == "jax":
        import jax

        return jax.nn.dot_product_attention
    if library == "keras":
        import keras

        return lambda query, key, value: keras.ops.dot_product_attention(
            query, key, value
        )
    from keras_attn import ops

    mask = None
    if causal:
        mask = ops.masks.causal()
    if sliding_window is not None:
        mask = mask & ops.masks.window(sliding_window)
    return lambda query, key, value: ops.dot_product_attention(
        query, key, value, mask=mask, kernel=kernel
    )


def call_of(backend, step, jit=False, **options):
    """Return a function of three tensors that waits for its result."""
    attend = attention_of(backend, **options)
    if backend == "tensorflow":
        import tensorflow as tf

        def train(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                total = tf.reduce_sum(attend(*tensors))
            return tape.gradient(total, tensors)

        run = tf.function(attend if step == "forward" else train, jit_compile=jit)
        return lambda *x: [y.numpy() for y in tf.nest.flatten(run(*x))]
    if backend == "jax":
        import jax

        def train(*tensors):
            def total(*x):
                return attend(*x).astype("float32").sum()

            return jax.grad(total, argnums=(0, 1, 2))(*tensors)

        run = jax.jit(attend if step == "forward" else train)
        return lambda *x: jax.block_until_ready(run(*x))
    import torch

    def run(*tensors):
        if step == "forward":
            with torch.no_grad():
                outputs = attend(*tensors)
        else:
            tensors = [x.detach().requires_grad_() for x in tensors]
            attend(*tensors).float().sum().backward()
            outputs = [x.grad for x in tensors]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return outputs

    return run


def tensors_of(backend, length, dtype):
    """Return query, key and value of a backend."""
    import numpy as np

    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(1, length, HEADS, HEAD_SIZE)).astype("float32")] * 3
    if backend == "torch":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        return [
            torch.tensor(x, device=device, dtype=getattr(torch, dtype)) for x in arrays
        ]
    if backend == "jax":
        import jax

        return [jax.numpy.asarray(x, dtype=dtype) for x in arrays]
    import tensorflow as tf

    return [tf.cast(tf.constant(x), dtype) for x in arrays]


def times(backend, calls, step, length, dtype, seconds):
    """Return the median seconds of each call; the calls alternate."""
    tensors = tensors_of(backend, length, dtype)
    runs = {name: call_of(backend, step, **options) for name, options in calls.items()}
    for run in runs.values():
        run(*tensors)
    measured = {name: [] for name in runs}
    first = time.perf_counter()
    while (
        time.perf_counter() - first < seconds * len(runs)
        or min(map(len, measured.values())) < 3
    ):
        for name, run in runs.items():
            start = time.perf_counter()
            run(*tensors)
            measured[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in measured.items()}


def memory(backend, calls, step, length, dtype):
    """Return the peak memory of a call in bytes, without the memory before it."""
    (options,) = calls.values()
    run = call_of(backend, step, **options)
    # Compile for this length first, so that only the call is measured.
    for size in (256, length):
        run(*tensors_of(backend, size, dtype))
    tensors = tensors_of(backend, length, dtype)
    release_memory()
    before = reset_peak()
    run(*tensors)
    return max(status("VmHWM") - before, 0)


def once(backend, calls, step, length, dtype):
    """Return the seconds of one call with compilation, and the peak memory in bytes."""
    (options,) = calls.values()
    tensors = tensors_of(backend, length, dtype)
    start = time.perf_counter()
    call_of(backend, step, **options)(*tensors)
    return time.perf_counter() - start, status("VmHWM")


# The main process


def run_in_new_process(measurement, backend, calls, *arguments):
    """Return a measurement made in a new process.

    If the process fails, print its error and return None.
    """
    request = json.dumps([measurement, backend, calls, arguments])
    result = subprocess.run(
        [sys.executable, __file__, "--measure", request],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
    )
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or [result.returncode])[-1]
        print(f"{measurement} of {', '.join(calls)}: {reason}", file=sys.stderr)
        return None
    return json.loads(result.stdout.splitlines()[-1])


def measure(step, length, names, arguments):
    """Print a Markdown table of one step at one length."""
    default_backend = os.environ["KERAS_BACKEND"]
    by_backend = {}
    for name in names:
        backend, options = CALLS[name]
        by_backend.setdefault(backend or default_backend, {})[name] = options
    seconds, peak_bytes = {}, {}
    for backend, calls in by_backend.items():
        sizes = step, length, arguments.dtype
        measured = run_in_new_process("times", backend, calls, *sizes, 2.0)
        seconds.update(measured or {})
        for name, options in calls.items() if arguments.memory else ():
            call = {name: options}
            peak_bytes[name] = run_in_new_process("memory", backend, call, *sizes)
    best = min((seconds[n] for n in seconds if n.startswith("keras")), default=None)
    print(f"\n{step}, T = {length}, {arguments.dtype}, {default_backend}\n")
    print("| | ms | best of Keras / it | MB |\n|---|---|---|---|")
    for name in names:
        if name in seconds:
            ratio = f"{best / seconds[name]:.2f}" if best else ""
            bytes_ = peak_bytes.get(name)
            megabytes = "" if bytes_ is None else f"{bytes_ / 1e6:.0f}"
            print(f"| {name} | {seconds[name] * 1e3:.0f} | {ratio} | {megabytes} |")
    sys.stdout.flush()


def measure_once(step, length, names, arguments):
    """Print a line for each call of one step at one length."""
    for name in names:
        backend, options = CALLS[name]
        backend = backend or os.environ["KERAS_BACKEND"]
        sizes = step, length, arguments.dtype
        measured = run_in_new_process("once", backend, {name: options}, *sizes)
        if measured:
            seconds, bytes_ = measured
            print(
                f"{step}, T = {length}, {name}: one call {seconds:.0f} s, "
                f"the process {bytes_ / 2**30:.2f} GiB",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    steps = ["forward", "forward and backward"]
    parser.add_argument("--lengths", type=int, nargs="+", default=[4096, 8192])
    parser.add_argument("--only", choices=steps, nargs="+", default=steps)
    parser.add_argument("--calls", choices=CALLS, nargs="+", default=list(CALLS))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--memory", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--once", action="store_true", help="measure a single call")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measurement, backend, calls, rest = json.loads(arguments.measure)
        function = {"times": times, "memory": memory, "once": once}[measurement]
        print(json.dumps(function(backend, calls, *rest)))
        return
    for step in arguments.only:
        for length in arguments.lengths:
            function = measure_once if arguments.once else measure
            function(step, length, arguments.calls, arguments)


if __name__ == "__main__":
    main()
