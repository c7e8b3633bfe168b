"""Generated tokens per second: keras_attn, KerasHub, transformers and CTranslate2.

    python benchmarks/generation.py [--only greedy beam growth] [--batch 1 8]

Random weights, float32, on the CPU. The time of a call includes the prompt; the number
of generated tokens is fixed. `greedy`: a decoder with 6 layers, model width 512,
feed-forward width 2048, 8 heads, vocabulary 8,000, prompt of 4 tokens, 256 new tokens.
`beam`: an encoder-decoder with 6+6 such layers, source of 32 tokens, 4 beams, 64 new
tokens. All models are in one process, and their calls alternate. Libraries that are not
installed are left out:

    pip install torch transformers ctranslate2

The last two rows of a table are upper bounds of the machine: if each step only read the
weights once, at the rate of reading a large array, and if it only computed the matrix
products, at the rate of a large matrix product.

`growth` is keras_attn's time per token for 64, 128, ... 1024 tokens, with the size of
the KV cache.
"""

import argparse
import importlib.util
import os
import statistics
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import keras_hub
import numpy as np
import tensorflow as tf

from keras_attn import decoding, models

DEPTH, WIDTH, INNER, HEADS, VOCABULARY = 6, 512, 2048, 8, 8000
PROMPT, TOKENS = 4, 256
SOURCE, BEAMS, BEAM_TOKENS = 32, 4, 64
SIZES = dict(
    num_layers=DEPTH, hidden_dim=WIDTH, intermediate_dim=INNER, num_heads=HEADS
)
RNG = np.random.default_rng(0)


def ids(*shape):
    """Return random token ids."""
    return RNG.integers(4, VOCABULARY, shape, dtype="int32")


# Greedy search. Each function returns a call that waits for the generated tokens.


def keras_attn_greedy(batch, tokens=TOKENS):
    model = models.causal_language_model(
        VOCABULARY, **SIZES, activation="relu", max_length=PROMPT + tokens
    )
    prompt = ids(batch, PROMPT)

    def call():
        outputs = decoding.generate(
            model, {"token_ids": prompt}, max_new_tokens=tokens, jit_compile=True
        )
        return keras.ops.convert_to_numpy(outputs["token_ids"])

    return call


def keras_hub_greedy(batch, jit_compile):
    backbone = keras_hub.models.GPT2Backbone(
        VOCABULARY, DEPTH, HEADS, WIDTH, INNER, max_sequence_length=PROMPT + TOKENS
    )
    model = keras_hub.models.GPT2CausalLM(backbone, preprocessor=None)
    model.compile(sampler="greedy", jit_compile=jit_compile)
    is_prompt = np.arange(PROMPT + TOKENS) < PROMPT
    prompt = {
        "token_ids": ids(batch, PROMPT + TOKENS) * is_prompt,
        "padding_mask": np.tile(is_prompt.astype("int32"), (batch, 1)),
    }
    return lambda: model.generate(prompt, stop_token_ids=None)


def transformers_greedy(batch):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=PROMPT + TOKENS,
        n_embd=WIDTH,
        n_layer=DEPTH,
        n_head=HEADS,
        n_inner=INNER,
        activation_function="relu",
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = GPT2LMHeadModel(config).eval()
    prompt = torch.from_numpy(ids(batch, PROMPT)).long()
    lengths = dict(max_new_tokens=TOKENS, min_new_tokens=TOKENS)
    return lambda: model.generate(prompt, do_sample=False, **lengths)


def ctranslate2_greedy(batch):
    import ctranslate2

    spec = ctranslate2.specs.TransformerDecoderModelSpec.from_config(
        DEPTH, HEADS, activation=ctranslate2.specs.Activation.RELU
    )
    positions = PROMPT + TOKENS
    fill_ctranslate2_side(spec.decoder, positions, has_context=False)
    generator = ctranslate2.Generator(
        save_ctranslate2(spec, ["vocabulary"]), intra_threads=os.cpu_count()
    )
    prompt = [[f"w{i}" for i in row] for row in ids(batch, PROMPT)]
    return lambda: generator.generate_batch(
        prompt,
        max_length=TOKENS,
        min_length=TOKENS,
        sampling_topk=1,
        include_prompt_in_result=False,
    )


# Beam search


def keras_attn_beam(batch):
    model = models.transformer_translator(VOCABULARY, **SIZES)
    source = ids(batch, SOURCE)

    def call():
        outputs = decoding.generate(
            model,
            {"source": source},
            start_token_id=2,
            max_new_tokens=BEAM_TOKENS,
            strategy=decoding.BeamSearch(BEAMS),
            jit_compile=True,
        )
        return keras.ops.convert_to_numpy(outputs["token_ids"])

    return call


def keras_hub_beam(batch, jit_compile):
    backbone = keras_hub.models.BartBackbone(
        VOCABULARY, DEPTH, HEADS, WIDTH, INNER, max_sequence_length=BEAM_TOKENS + 1
    )
    model = keras_hub.models.BartSeq2SeqLM(backbone, preprocessor=None)
    sampler = keras_hub.samplers.BeamSampler(num_beams=BEAMS)
    model.compile(sampler=sampler, jit_compile=jit_compile)
    is_prompt = np.arange(BEAM_TOKENS + 1) < 1
    inputs = {
        "encoder_token_ids": ids(batch, SOURCE),
        "encoder_padding_mask": np.ones((batch, SOURCE), "int32"),
        "decoder_token_ids": ids(batch, BEAM_TOKENS + 1) * is_prompt,
        "decoder_padding_mask": np.tile(is_prompt.astype("int32"), (batch, 1)),
    }
    return lambda: model.generate(inputs, stop_token_ids=None)


def transformers_beam(batch):
    import torch
    from transformers import MarianConfig, MarianMTModel

    side = dict(layers=DEPTH, attention_heads=HEADS, ffn_dim=INNER)
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        **{f"encoder_{name}": value for name, value in side.items()},
        **{f"decoder_{name}": value for name, value in side.items()},
        activation_function="relu",
        pad_token_id=0,
        eos_token_id=3,
        decoder_start_token_id=2,
        forced_eos_token_id=None,
    )
    model = MarianMTModel(config).eval()
    source = torch.from_numpy(ids(batch, SOURCE)).long()
    lengths = dict(max_new_tokens=BEAM_TOKENS, min_new_tokens=BEAM_TOKENS)
    return lambda: model.generate(
        source, num_beams=BEAMS, do_sample=False, length_penalty=0.6, **lengths
    )


def ctranslate2_beam(batch):
    import ctranslate2

    spec = ctranslate2.specs.TransformerSpec.from_config(
        DEPTH, HEADS, activation=ctranslate2.specs.Activation.RELU
    )
    fill_ctranslate2_side(spec.encoder, SOURCE, has_context=False)
    fill_ctranslate2_side(spec.decoder, BEAM_TOKENS + 1, has_context=True)
    path = save_ctranslate2(spec, ["source_vocabulary", "target_vocabulary"])
    translator = ctranslate2.Translator(path, intra_threads=os.cpu_count())
    source = [[f"w{i}" for i in row] for row in ids(batch, SOURCE)]
    return lambda: translator.translate_batch(
        source,
        beam_size=BEAMS,
        length_penalty=0.6,
        max_decoding_length=BEAM_TOKENS,
        min_decoding_length=BEAM_TOKENS,
    )


def fill_ctranslate2_side(side, positions, has_context):
    """Assign random weights to a CTranslate2 encoder or decoder specification."""

    def weights(*shape):
        return RNG.normal(scale=0.03, size=shape).astype("float32")

    def linear(part, outputs, inputs):
        part.weight, part.bias = weights(outputs, inputs), weights(outputs)

    def norm(part):
        part.gamma, part.beta = np.ones(WIDTH, "float32"), weights(WIDTH)

    def attention(part, sizes):
        norm(part.layer_norm)
        for layer, outputs in zip(part.linear, sizes):
            linear(layer, outputs, WIDTH)

    embeddings = side.embeddings
    embeddings = embeddings[0] if isinstance(embeddings, list) else embeddings
    embeddings.weight = weights(VOCABULARY, WIDTH)
    side.position_encodings.encodings = weights(positions, WIDTH)
    side.scale_embeddings = True
    norm(side.layer_norm)
    for layer in side.layer:
        attention(layer.self_attention, (3 * WIDTH, WIDTH))
        if has_context:
            attention(layer.attention, (WIDTH, 2 * WIDTH, WIDTH))
        norm(layer.ffn.layer_norm)
        linear(layer.ffn.linear_0, INNER, WIDTH)
        linear(layer.ffn.linear_1, WIDTH, INNER)
    if hasattr(side, "projection"):
        linear(side.projection, VOCABULARY, WIDTH)


def save_ctranslate2(spec, vocabularies):
    """Save a CTranslate2 model to a temporary folder; return its path."""
    tokens = ["<unk>", "<s>", "<blank>", "</s>"]
    tokens += [f"w{i}" for i in range(len(tokens), VOCABULARY)]
    for name in vocabularies:
        if name == "vocabulary":
            spec.register_vocabulary(tokens)
        else:
            getattr(spec, f"register_{name}")(tokens)
    spec.config.unk_token, spec.config.bos_token = "<unk>", "<s>"
    spec.config.eos_token = "</s>"
    spec.validate()
    spec.optimize()
    path = tempfile.mkdtemp()
    spec.save(path)
    return path


# The machine


def rates():
    """Return the memory bandwidth in bytes/s and the matrix product rate in FLOP/s."""
    array = tf.random.normal((64 * 1024 * 1024,))  # 256 MB, larger than any cache
    square = tf.random.normal((2048, 2048))
    read = tf.function(lambda: tf.reduce_sum(array))
    multiply = tf.function(lambda: tf.linalg.matmul(square, square))
    return (
        array.shape[0] * 4 / fastest(lambda: read().numpy()),
        2 * 2048**3 / fastest(lambda: multiply().numpy()),
    )


def fastest(call, rounds=7):
    """Return the minimum seconds of a call."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def decoder_parameters(kind):
    """Return the number of parameters in the matrix products of a decoding step."""
    attentions = 4 if kind == "greedy" else 6  # cross-attention: query and output only
    block = attentions * WIDTH * WIDTH + 2 * WIDTH * INNER
    return DEPTH * block + VOCABULARY * WIDTH


def medians(calls, rounds):
    """Return the median seconds of each call, and the seconds of its first call.

    The calls alternate.
    """
    first, times = {}, {name: [] for name in calls}
    for name, call in calls.items():
        start = time.perf_counter()
        call()
        first[name] = time.perf_counter() - start
    for _ in range(rounds):
        for name, call in calls.items():
            time.sleep(0.3)  # threads of other runtimes spin this long
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}, first


def compare(kind, batch, rounds):
    """Print a table that compares the libraries on one task."""
    tokens = batch * (TOKENS if kind == "greedy" else BEAM_TOKENS)
    hypotheses = batch * (1 if kind == "greedy" else BEAMS)
    build = globals()
    calls = {"keras_attn": build[f"keras_attn_{kind}"](batch)}
    for jit in (False, True):
        name = f"KerasHub, jit {'on' if jit else 'off'}"
        calls[name] = build[f"keras_hub_{kind}"](batch, jit)
    for library in ("transformers", "ctranslate2"):
        if importlib.util.find_spec(library):
            calls[library] = build[f"{library}_{kind}"](batch)
    times, first = medians(calls, rounds)
    print(f"\n{kind}, batch {batch}\n")
    print("| | tokens/s | keras_attn is faster by | first call, s |")
    print("|---|---|---|---|")
    for name, seconds in times.items():
        ratio = seconds / times["keras_attn"]
        print(f"| {name} | {tokens / seconds:.0f} | {ratio:.2f} | {first[name]:.1f} |")
    bandwidth, speed = rates()
    parameters = decoder_parameters(kind)
    bound = batch * bandwidth / (4 * parameters)
    print(f"| bound: weights read at {bandwidth / 1e9:.1f} GB/s | {bound:.0f} | | |")
    bound = batch * speed / (2 * parameters * hypotheses)
    print(f"| bound: matrix products at {speed / 1e9:.0f} GFLOP/s | {bound:.0f} | | |")


def growth(batch, rounds):
    """Print a table of the time per token by the number of tokens."""
    print(f"\ngrowth, batch {batch}\n")
    print("| tokens | ms per token | cache, MB |")
    print("|---|---|---|")
    for tokens in (64, 128, 256, 512, 1024):
        times, _ = medians({"generate": keras_attn_greedy(batch, tokens)}, rounds)
        cache = 2 * 4 * DEPTH * batch * (PROMPT + tokens) * WIDTH
        milliseconds = times["generate"] / tokens * 1e3
        print(f"| {tokens} | {milliseconds:.2f} | {cache / 1e6:.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    kinds = ["greedy", "beam", "growth"]
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    for kind in arguments.only:
        for batch in arguments.batch:
            if kind == "growth":
                growth(batch, arguments.rounds)
            else:
                compare(kind, batch, arguments.rounds)


if __name__ == "__main__":
    main()
