"""Time of training steps and forward passes: keras_attn, KerasHub and PyTorch.

    python benchmarks/training_step.py [--only small] [--jit on] [--step infer]

Two models: `small`, an encoder-decoder with 2+2 layers of width 128, and `encoder`, an
encoder with 6 layers of width 512. Each is built three times: from the blocks of
keras_attn, from those of KerasHub (with the same embedding, loss and weights), and in
PyTorch (with fused Adam, and the fast path for inference). The calls alternate, so that
a drift of the machine's speed affects all alike. A row of the table has the median
milliseconds of each library and their ratio to keras_attn: above 1, keras_attn is
faster.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import keras_hub
import numpy as np
import tensorflow as tf

from keras_attn import layers

VOCABULARY = 2000
CONFIGURATIONS = {
    # layers, width, feed-forward width, heads, batch, length, has a decoder
    "small": (2, 128, 512, 4, 32, 32, True),
    "encoder": (6, 512, 2048, 8, 4, 64, False),
}


def build(blocks, depth, width, inner, heads, has_decoder):
    """Return the Keras model, with the blocks of the module `blocks`."""

    def embed(ids):
        x = keras.layers.Embedding(VOCABULARY, width, mask_zero=True)(ids)
        return layers.SinusoidalPositionEmbedding()(x)

    source = keras.Input((None,), dtype="int32", name="source")
    x = embed(source)
    for _ in range(depth):
        x = blocks.TransformerEncoder(inner, heads)(x)
    inputs = {"source": source}
    if has_decoder:
        target = keras.Input((None,), dtype="int32", name="target")
        inputs["target"] = target
        encoded, x = x, embed(target)
        for _ in range(depth):
            x = blocks.TransformerDecoder(inner, heads)(x, encoded)
    return keras.Model(inputs, keras.layers.Dense(VOCABULARY)(x))


def keras_calls(model, data, labels, jit_compile):
    """Return functions for a training step and a forward pass of a Keras model."""
    model.compile(
        optimizer=keras.optimizers.Adam(1e-4),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit_compile,
    )
    model.make_train_function()
    batches = iter(tf.data.Dataset.from_tensors((data, labels)).repeat())
    inputs = {name: tf.constant(value) for name, value in data.items()}
    forward = tf.function(
        lambda: model(inputs, training=False), jit_compile=jit_compile
    )

    def train():
        return np.asarray(model.train_function(batches)["loss"])

    return {"train": train, "infer": lambda: forward().numpy()}


def torch_calls(depth, width, inner, heads, has_decoder, data, labels):
    """Return functions for a training step and a forward pass of the PyTorch model."""
    import torch
    from torch import nn

    def block(kind):
        return kind(width, heads, inner, dropout=0.0, batch_first=True)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.source = nn.Embedding(VOCABULARY, width)
            self.encoder = nn.TransformerEncoder(
                block(nn.TransformerEncoderLayer), depth
            )
            if has_decoder:
                self.target = nn.Embedding(VOCABULARY, width)
                self.decoder = nn.TransformerDecoder(
                    block(nn.TransformerDecoderLayer), depth
                )
            self.output = nn.Linear(width, VOCABULARY)

        def forward(self, source, target=None):
            padding = source == 0
            x = self.encoder(self.source(source), src_key_padding_mask=padding)
            if target is not None:
                causal = nn.Transformer.generate_square_subsequent_mask(
                    target.shape[1], dtype=torch.bool
                )
                x = self.decoder(
                    self.target(target),
                    x,
                    tgt_mask=causal,
                    tgt_key_padding_mask=target == 0,
                    memory_key_padding_mask=padding,
                    tgt_is_causal=True,
                )
            return self.output(x)

    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), 1e-4, fused=True)
    inputs = {name: torch.from_numpy(value).long() for name, value in data.items()}
    labels = torch.from_numpy(labels).long()

    def train():
        net.train()
        optimizer.zero_grad()
        logits = net(**inputs)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    def infer():
        net.eval()
        with torch.inference_mode():
            return net(**inputs)

    return {"train": train, "infer": infer}


def medians(calls, rounds):
    """Return the median seconds of each call; the calls alternate.

    Before each timed call there are a pause and an untimed call, since the threads of
    another runtime spin for up to 0.2 s and would slow down the next call.
    """
    times = {name: [] for name in calls}
    for call in calls.values():
        call()
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            time.sleep(0.3)
            call()
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=CONFIGURATIONS)
    parser.add_argument("--jit", choices=["off", "on"], help="default: both")
    parser.add_argument("--step", choices=["infer", "train"], help="default: both")
    parser.add_argument("--no-torch", action="store_true")
    arguments = parser.parse_args()
    names = "keras_attn ms | KerasHub ms | ratio | PyTorch ms | ratio"
    print(f"| model | step | jit | {names} |")
    print("|---|---|---|---|---|---|---|---|")
    rng = np.random.default_rng(0)
    for model_name, configuration in CONFIGURATIONS.items():
        if arguments.only not in (None, model_name):
            continue
        *sizes, batch, length, has_decoder = configuration
        data = {
            name: rng.integers(1, VOCABULARY, (batch, length), dtype="int32")
            for name in (["source", "target"] if has_decoder else ["source"])
        }
        for values in data.values():  # padding at the end of half of the batch
            values[: batch // 2, -length // 4 :] = 0
        labels = rng.integers(1, VOCABULARY, (batch, length), dtype="int32")
        torch_model = (
            None
            if arguments.no_torch
            else torch_calls(*sizes, has_decoder, data, labels)
        )
        for jit_compile in (False, True):
            if arguments.jit not in (None, "on" if jit_compile else "off"):
                continue
            model = build(layers, *sizes, has_decoder)
            keras_hub_model = build(keras_hub.layers, *sizes, has_decoder)
            model.set_weights(keras_hub_model.get_weights())
            libraries = {
                "keras_attn": keras_calls(model, data, labels, jit_compile),
                "keras_hub": keras_calls(keras_hub_model, data, labels, jit_compile),
            }
            if torch_model:
                libraries["torch"] = torch_model
            for step in ("infer", "train"):
                if arguments.step not in (None, step):
                    continue
                calls = {name: library[step] for name, library in libraries.items()}
                seconds = medians(calls, arguments.rounds)
                cells = [model_name, step, "on" if jit_compile else "off"]
                cells.append(f"{seconds['keras_attn'] * 1e3:.1f}")
                for name in ("keras_hub", "torch"):
                    if name in seconds:
                        cells.append(f"{seconds[name] * 1e3:.1f}")
                        cells.append(f"{seconds[name] / seconds['keras_attn']:.3f}")
                print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
