"""Compiled programs and step models of `generate`: shared, bounded, freed."""

import gc
import weakref

import keras
import numpy as np
import pytest
from stacked_models import V, language_model
from tensors import array, fill_weights

from keras_attn import decoding, ops, training
from keras_attn.decoding import request


def cache_of(model):
    return request._CACHES[model][None]


def num_nodes(model):
    """The number of calls that Keras recorded for the layers of the model."""
    return sum(len(layer._inbound_nodes) for layer in model._flatten_layers())


def generate(model, length, seed=0, batch_size=1):
    prompts = np.random.default_rng(seed).integers(1, V, (batch_size, length))
    return decoding.generate(
        model,
        prompts,
        max_new_tokens=3,
        strategy=decoding.Sampling(seed=seed),
        jit_compile=False,
    )


@pytest.mark.slow
def test_prompt_lengths_share_step_models():
    model = language_model()
    generate(model, 2)
    before = num_nodes(model)
    for length in (3, 8, 13):
        generate(model, length, batch_size=1 + length % 2)
    assert num_nodes(model) == before
    assert len(cache_of(model).step_models) == 1


def test_seeds_share_a_program():
    model = fill_weights(language_model())
    results = [generate(model, 5, seed) for seed in range(3)]
    assert len(cache_of(model).programs) == 1
    tokens = {str(array(result["token_ids"])) for result in results}
    assert len(tokens) > 1


@pytest.mark.slow
def test_old_programs_are_freed(monkeypatch):
    monkeypatch.setattr(request, "_MAX_PROGRAMS", 2)
    model = language_model()
    for max_new_tokens in (1, 2, 3, 1):
        decoding.generate(
            model, [[1, 2]], max_new_tokens=max_new_tokens, jit_compile=False
        )
        programs = cache_of(model).programs
        if max_new_tokens == 1 and len(programs) == 1:
            (first,) = programs.values()
            first = weakref.ref(first)
    assert len(programs) == 2
    assert first() is None


@pytest.mark.slow
def test_everything_is_freed_with_the_model():
    model = language_model()
    generate(model, 2)
    kept = [weakref.ref(model), weakref.ref(cache_of(model))]
    del model
    gc.collect()
    assert [reference() for reference in kept] == [None, None]


@pytest.mark.slow
@pytest.mark.every_backend
def test_a_forced_kernel_does_not_change_the_tokens():
    model = fill_weights(language_model())
    prompts = np.array([[1, 2, 3]])
    expected = decoding.generate(model, prompts, max_new_tokens=4)
    for kernel in ("blockwise", "full"):
        again = keras.models.clone_model(model)
        again.set_weights(model.get_weights())
        with ops.attention_kernel(kernel):
            found = decoding.generate(again, prompts, max_new_tokens=4)
        np.testing.assert_array_equal(
            array(found["token_ids"]), array(expected["token_ids"])
        )


@pytest.mark.slow
@pytest.mark.every_backend
def test_generate_during_fit():
    """Keras on JAX holds the weights outside the model while it trains."""
    model = fill_weights(language_model())
    ids = np.random.default_rng(0).integers(1, V, (8, 6))
    model.compile("sgd", training.MaskedCrossentropy())
    during, after = [], []

    def on_batch(batch, logs=None):
        try:
            during.append(generate(model, 3)["token_ids"])
        except RuntimeError as error:
            during.append(error)

    callback = keras.callbacks.LambdaCallback(
        on_train_batch_end=on_batch,
        on_epoch_end=lambda epoch, logs: after.append(generate(model, 3)),
    )
    for _ in range(2):  # with a compiled program, too
        model.fit({"target": ids}, ids, batch_size=4, verbose=0, callbacks=[callback])
    assert len(during) == 4 and len(after) == 2
    if keras.backend.backend() == "jax":
        for error in during:
            assert "while `fit`" in str(error)
    else:
        assert not any(isinstance(result, Exception) for result in during)
    expected = array(generate(model, 3)["token_ids"])
    np.testing.assert_array_equal(array(after[-1]["token_ids"]), expected)
