"""One exported translator, loaded once, asked by eight threads."""

import pathlib
import sys

import pytest
import stress
import tensorflow as tf
from small_models import other_names

from keras_attn.decoding import BeamSearch
from keras_attn.serving import export_translator

# What an allocator may keep between two requests; a leak of one answer's tensors, or
# of a graph for each request, would be more over 250 requests.
MARGIN = 8 * 2**20


@pytest.mark.skipif(
    not pathlib.Path("/proc/self/statm").exists() or sys.platform != "linux",
    reason="resident memory is read from /proc",
)
def test_500_requests_of_8_threads(tokenizers, tmp_path):
    tokenizer = tokenizers["character"]
    path = export_translator(
        other_names(tokenizer.vocabulary_size),
        tmp_path / "translator",
        tokenizer,
        strategy=BeamSearch(2, num_return_sequences=2),
        max_new_tokens=4,
        max_source_length=40,
        target="summary",
        jit_compile=False,
    )
    signature = tf.saved_model.load(str(path)).signatures["n_best"]
    requests = stress.random_requests(500)
    assert {len(request) for request in requests} == set(range(1, 17))
    expected = [stress.ask(signature, request) for request in requests]
    texts = {text for answer in expected for text in answer["texts"].ravel()}
    assert len(texts) > 50, "a model that says one thing shows nothing"
    answers, memory = stress.ask_at_once(signature, requests)
    assert stress.differences(answers, expected) == 0
    assert stress.growth(memory) < MARGIN
