"""One exported translator that serves eight threads."""

import pathlib
import sys

import pytest
import stress
import tensorflow as tf
from small_models import other_names

from keras_attn.decoding import BeamSearch
from keras_attn.serving import export_translator

pytestmark = [pytest.mark.slow, pytest.mark.export]

# An allocator may keep this many bytes between two requests. Leaking the outputs of
# each request, or a graph per request, would need more memory for 250 requests.
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
    expected = [stress.run(signature, request) for request in requests]
    texts = {text for output in expected for text in output["texts"].ravel()}
    assert len(texts) > 50, "the test requires a model that generates different texts"
    outputs, memory = stress.run_concurrently(signature, requests)
    assert stress.count_differences(outputs, expected) == 0
    assert stress.growth(memory) < MARGIN
