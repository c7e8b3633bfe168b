"""Attention over long sequences: our kernels beside Keras's, PyTorch's and JAX's.

    python benchmarks/long_attention.py [--lengths 4096 8192] [--only forward]
    KERAS_BACKEND=jax python benchmarks/long_attention.py --dtype bfloat16

One row, 8 heads of 64. For each length, forward and forward with backward:

- the blockwise kernel, without XLA and with it (`blockwise`, `blockwise, XLA`), the
  same with a causal mask and with a window of 512;
- `keras.ops.dot_product_attention` and `keras.layers.MultiHeadAttention`'s products,
  without XLA and with it;
- PyTorch's `scaled_dot_product_attention` and `jax.nn.dot_product_attention`, in
  processes of their own, where they are installed.

What runs on one backend takes turns, call by call; a row gives the median in
milliseconds and the most memory that one call takes beyond what the process has before
it, each measured in a fresh process. With `--once` each call is made once, in a process
of its own, and the memory is that of the whole process: for lengths that take minutes.
The backend of the first two is that of
`KERAS_BACKEND` (default: tensorflow); on a GPU, memory is not measured.
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

HEADS, SIZE, WINDOW = 8, 64, 512

# Name -> the backend it runs on (None: that of `KERAS_BACKEND`), and its options.
CALLS = {
    "keras.ops": (None, dict(peer="keras")),
    "keras.ops, XLA": (None, dict(peer="keras", jit=True)),
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
    "PyTorch": ("torch", dict(peer="torch")),
    "JAX": ("jax", dict(peer="jax", jit=True)),
}


# In the processes that measure


def attention_of(
    backend, peer=None, kernel="auto", causal=False, sliding_window=None, **_
):
    """A function of query, key and value `(1, T, N, H)`."""
    if peer == "torch":
        import torch

        def attend(query, key, value):
            turned = [x.transpose(1, 2) for x in (query, key, value)]
            found = torch.nn.functional.scaled_dot_product_attention(*turned)
            return found.transpose(1, 2)

        return attend
    if peer == "jax":
        import jax

        return jax.nn.dot_product_attention
    if peer == "keras":
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
    """A function of three tensors, that has done its work when it returns."""
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
                found = attend(*tensors)
        else:
            tensors = [x.detach().requires_grad_() for x in tensors]
            attend(*tensors).float().sum().backward()
            found = [x.grad for x in tensors]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return found

    return run


def tensors_of(backend, length, dtype):
    import numpy as np

    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(1, length, HEADS, SIZE)).astype("float32")] * 3
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
    """Median seconds of each call, taken in turns."""
    tensors = tensors_of(backend, length, dtype)
    runs = {name: call_of(backend, step, **options) for name, options in calls.items()}
    for run in runs.values():
        run(*tensors)
    found = {name: [] for name in runs}
    began = time.perf_counter()
    while (
        time.perf_counter() - began < seconds * len(runs)
        or min(map(len, found.values())) < 3
    ):
        for name, run in runs.items():
            start = time.perf_counter()
            run(*tensors)
            found[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in found.items()}


def memory(backend, calls, step, length, dtype):
    """Most bytes of resident memory that a call takes beyond those before it."""
    (options,) = calls.values()
    run = call_of(backend, step, **options)
    # Compiled for this very length, then freed, so that the call alone is seen.
    for size in (256, length):
        run(*tensors_of(backend, size, dtype))
    tensors = tensors_of(backend, length, dtype)
    release_memory()
    before = reset_peak()
    run(*tensors)
    return max(status("VmHWM") - before, 0)


def once(backend, calls, step, length, dtype):
    """Seconds of one call, compilation included, and the most bytes of the process."""
    (options,) = calls.values()
    tensors = tensors_of(backend, length, dtype)
    start = time.perf_counter()
    call_of(backend, step, **options)(*tensors)
    return time.perf_counter() - start, status("VmHWM")


# In the one that asks them


def ask(what, backend, calls, *arguments):
    """What a fresh process finds; None where it fails, which is told."""
    request = json.dumps([what, backend, calls, arguments])
    result = subprocess.run(
        [sys.executable, __file__, "--measure", request],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
    )
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or [result.returncode])[-1]
        print(f"{what} of {', '.join(calls)}: {reason}", file=sys.stderr)
        return None
    return json.loads(result.stdout.splitlines()[-1])


def measure(step, length, names, arguments):
    """A markdown table of one step at one length."""
    own = os.environ["KERAS_BACKEND"]
    by_backend = {}
    for name in names:
        backend, options = CALLS[name]
        by_backend.setdefault(backend or own, {})[name] = options
    seconds, taken = {}, {}
    for backend, calls in by_backend.items():
        found = ask("times", backend, calls, step, length, arguments.dtype, 2.0)
        seconds.update(found or {})
        for name, options in calls.items() if arguments.memory else ():
            single = {name: options}
            taken[name] = ask("memory", backend, single, step, length, arguments.dtype)
    best = min((seconds[n] for n in seconds if n.startswith("keras")), default=None)
    print(f"\n{step}, T = {length}, {arguments.dtype}, {own}\n")
    print("| | ms | best of Keras / it | MB |\n|---|---|---|---|")
    for name in names:
        if name in seconds:
            ratio = f"{best / seconds[name]:.2f}" if best else ""
            bytes_ = taken.get(name)
            megabytes = "" if bytes_ is None else f"{bytes_ / 1e6:.0f}"
            print(f"| {name} | {seconds[name] * 1e3:.0f} | {ratio} | {megabytes} |")
    sys.stdout.flush()


def measure_once(step, length, names, arguments):
    """A line for each call of one step at one length."""
    for name in names:
        backend, options = CALLS[name]
        backend = backend or os.environ["KERAS_BACKEND"]
        found = ask("once", backend, {name: options}, step, length, arguments.dtype)
        if found:
            seconds, bytes_ = found
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
    parser.add_argument("--once", action="store_true", help="one call, its process")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        what, backend, calls, rest = json.loads(arguments.measure)
        function = {"times": times, "memory": memory, "once": once}[what]
        print(json.dumps(function(backend, calls, *rest)))
        return
    for step in arguments.only:
        for length in arguments.lengths:
            function = measure_once if arguments.once else measure
            function(step, length, arguments.calls, arguments)


if __name__ == "__main__":
    main()
