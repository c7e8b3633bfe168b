"""Time of a training step and of a forward pass, beside KerasHub and PyTorch.

    python benchmarks/training_step.py [--only small] [--jit on] [--step infer]

Two models: `small`, an encoder-decoder of 2+2 layers, 128 wide; `encoder`, 6 layers,
512 wide. Each is built three times, from `keras_attn`'s blocks, from KerasHub's (the
same embedding and loss around them, weights copied across) and in PyTorch (fused Adam;
in inference its fast path). They take turns, call by call, so that a machine whose
speed drifts slows all alike; a row gives medians in milliseconds and ratios of medians
over the same calls: above 1, keras_attn is the faster one.
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
    """The model in Keras, its blocks from one of the two libraries."""

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
    """A training step and a forward pass of a Keras model, as functions."""
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
    """The same model in PyTorch."""
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
    """Median seconds of each call, taken in turns.

    Before each timed call there is a pause and an untimed call of its own: the threads
    of another runtime go on spinning for up to 0.2 s, and would slow whoever is next.
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
    print("| model | step | jit | ours ms | KerasHub ms | ratio | PyTorch ms | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    rng = np.random.default_rng(0)
    for model_name, row in CONFIGURATIONS.items():
        if arguments.only not in (None, model_name):
            continue
        *sizes, batch, length, has_decoder = row
        data = {
            name: rng.integers(1, VOCABULARY, (batch, length), dtype="int32")
            for name in (["source", "target"] if has_decoder else ["source"])
        }
        for values in data.values():  # the ends of some rows are padding
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
            ours = build(layers, *sizes, has_decoder)
            hub = build(keras_hub.layers, *sizes, has_decoder)
            ours.set_weights(hub.get_weights())
            ours = keras_calls(ours, data, labels, jit_compile)
            hub = keras_calls(hub, data, labels, jit_compile)
            for step in ("infer", "train"):
                if arguments.step not in (None, step):
                    continue
                calls = {"ours": ours[step], "hub": hub[step]}
                if torch_model:
                    calls["torch"] = torch_model[step]
                found = medians(calls, arguments.rounds)
                cells = [model_name, step, "on" if jit_compile else "off"]
                cells.append(f"{found['ours'] * 1e3:.1f}")
                for peer in ("hub", "torch"):
                    if peer in found:
                        cells.append(f"{found[peer] * 1e3:.1f}")
                        cells.append(f"{found[peer] / found['ours']:.3f}")
                print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
