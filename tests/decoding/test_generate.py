"""Generation in one compiled loop, against a loop in NumPy without a cache."""

import dataclasses
import gc
import typing
import weakref

import keras
import naive_search
import numpy as np
import pytest
import stacked_models
from keras import ops
from stacked_models import V

from keras_attn.decoding import BeamSearch, GreedySearch, generate
from keras_attn.decoding.request import _CACHES

START, END, LENGTH = 2, 3, 12
SOURCE = np.random.default_rng(5).integers(1, V, (6, 5)).astype("int32")
SOURCE[0, 3:] = SOURCE[1, 1:] = SOURCE[2, 4:] = 0


def found_by(model, inputs, **options):
    options = {
        "start_token_id": START,
        "end_token_id": END,
        "max_new_tokens": LENGTH,
        **options,
    }
    found = generate(model, inputs, **options)
    return {name: ops.convert_to_numpy(value) for name, value in found.items()}


def assert_same(found, expected):
    token_ids, scores, lengths = expected
    np.testing.assert_array_equal(found["token_ids"][:, 0], token_ids)
    np.testing.assert_array_equal(found["lengths"][:, 0], lengths)
    np.testing.assert_allclose(found["scores"][:, 0], scores, rtol=1e-4, atol=1e-4)


def starts(rows):
    return np.full((rows, 1), START)


@pytest.mark.every_backend
def test_it_equals_a_loop_without_a_cache(translator):
    found = found_by(translator, {"source": SOURCE})
    expected = naive_search.greedy(
        translator, {"source": SOURCE}, starts(6), END, LENGTH
    )
    assert len(set(expected[2])) > 2, "some rows must end and some must not"
    assert_same(found, expected)
    assert found["token_ids"].shape == (6, 1, LENGTH)
    assert found["scores"].shape == found["lengths"].shape == (6, 1)
    dtypes = {name: value.dtype.name for name, value in found.items()}
    assert dtypes == {"token_ids": "int32", "scores": "float32", "lengths": "int32"}


def test_a_row_does_not_depend_on_its_batch(translator):
    together = found_by(translator, {"source": SOURCE})
    for row, length in ((0, 3), (1, 1), (5, 5)):
        alone = found_by(translator, {"source": SOURCE[row : row + 1, :length]})
        for name in ("token_ids", "lengths"):
            np.testing.assert_array_equal(alone[name][0], together[name][row])
        np.testing.assert_allclose(alone["scores"][0], together["scores"][row], 1e-4)


@pytest.mark.slow
@pytest.mark.on_pytorch
@pytest.mark.parametrize("strategy", [GreedySearch(), BeamSearch(2)])
def test_no_rows_give_no_rows(translator, language_model, strategy):
    for model, inputs, options in (
        (translator, {"source": SOURCE[:0]}, {"return_alignment": True}),
        (translator, {"source": SOURCE[:0]}, {"prefix": np.ones((0, 2), "int32")}),
        (language_model, {"target": np.ones((0, 3), "int32")}, {}),
    ):
        found = found_by(model, inputs, strategy=strategy, **options)
        assert found["token_ids"].shape == (0, 1, LENGTH)
        assert found["scores"].shape == found["lengths"].shape == (0, 1)
        if "return_alignment" in options:
            assert found["alignment"].shape == (0, 1, LENGTH, SOURCE.shape[1])


@pytest.mark.slow
def test_xla_finds_the_same(translator):
    found = found_by(translator, {"source": SOURCE}, jit_compile=True)
    expected = found_by(translator, {"source": SOURCE})
    np.testing.assert_array_equal(found["token_ids"], expected["token_ids"])
    np.testing.assert_array_equal(found["lengths"], expected["lengths"])
    np.testing.assert_allclose(found["scores"], expected["scores"], rtol=1e-4)


def test_a_prompt(language_model):
    prompt = np.random.default_rng(1).integers(1, V, (4, 3)).astype("int32")
    found = found_by(
        language_model, {"target": prompt}, start_token_id=None, max_new_tokens=9
    )
    assert_same(found, naive_search.greedy(language_model, {}, prompt, END, 9))


@pytest.mark.slow
def test_a_prompt_beside_a_source(translator):
    prompt = np.random.default_rng(2).integers(4, V, (6, 2)).astype("int32")
    found = found_by(translator, {"source": SOURCE, "target": prompt}, max_new_tokens=5)
    expected = naive_search.greedy(translator, {"source": SOURCE}, prompt, END, 5)
    assert_same(found, expected)


def test_one_token(language_model):
    found = found_by(language_model, {"target": starts(2)}, max_new_tokens=1)
    assert found["token_ids"].shape == (2, 1, 1)
    assert_same(found, naive_search.greedy(language_model, {}, starts(2), END, 1))


# A model whose next token is a function of the last one alone.
NEXT = {2: 4, 4: 5, 5: 6, 6: END, 7: END, 8: 8}
SURE = 9.0


def chain(bare=True):
    target = keras.Input((None,), dtype="int32", name="target")
    table = np.zeros((V, V), "float32")
    for token, following in NEXT.items():
        table[token, following] = SURE
    layer = keras.layers.Embedding(V, V)
    logits = layer(target)
    layer.set_weights([table])
    return keras.Model(target if bare else {"target": target}, logits)


@dataclasses.dataclass(frozen=True)
class CountedSearch(GreedySearch):
    """Greedy search that also notes how often it was asked."""

    asked: typing.ClassVar[list] = []

    def advance(self, state, logits, log_probabilities, count, end_token_ids):
        self.asked.append(1)
        return super().advance(state, logits, log_probabilities, count, end_token_ids)


@pytest.fixture
def uncompiled():
    """Loops run in Python, where their turns can be counted."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.function")
@pytest.mark.parametrize(
    ("prompt", "steps"),
    [([7, 7], 1), ([6, 7], 1), ([5, 7, 2], 4), ([7, 8, 7], LENGTH)],
)
def test_the_loop_stops_when_every_row_has_ended(prompt, steps, uncompiled):
    CountedSearch.asked.clear()
    found_by(chain(), np.asarray(prompt)[:, None], strategy=CountedSearch())
    # 5 needs two tokens and 2 needs four; 8 never ends.
    assert len(CountedSearch.asked) == steps


def test_an_ended_row_is_padded_and_scores_no_more():
    found = found_by(chain(), np.asarray([[2], [7], [5], [8]]))
    expected = np.zeros((4, LENGTH), int)
    expected[0, :4] = 4, 5, 6, END
    expected[1, :1] = END
    expected[2, :2] = 6, END
    expected[3] = 8
    np.testing.assert_array_equal(found["token_ids"][:, 0], expected)
    assert found["lengths"][:, 0].tolist() == [4, 1, 2, LENGTH]
    token = SURE - np.log(np.exp(SURE) + V - 1)
    np.testing.assert_allclose(
        found["scores"][:, 0], token * np.array([4, 1, 2, LENGTH]), rtol=1e-4
    )


def test_a_single_input_comes_bare_or_in_a_dict():
    prompt = np.asarray([[2], [5]])
    expected = found_by(chain(), prompt)
    sequential = keras.Sequential(
        [keras.Input((None,), dtype="int32"), *chain().layers[1:]]
    )
    for found in (
        found_by(chain(), {"target": prompt}),
        found_by(chain(bare=False), prompt),
        found_by(sequential, prompt),
    ):
        np.testing.assert_array_equal(found["token_ids"], expected["token_ids"])


@pytest.mark.slow
def test_a_model_trained_further_is_used_as_it_is_now():
    model = stacked_models.lively_translator()
    weights = model.get_weights()
    before = found_by(model, {"source": SOURCE})
    (loop,) = _loops(model)
    traces = _traces(loop)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1.0), loss, jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    targets = np.full((6, 4), 7)
    inputs = {"source": SOURCE, "target": targets.astype("int32")}
    model.fit(inputs, targets, epochs=3, verbose=0)
    after = found_by(model, {"source": SOURCE})
    assert not np.array_equal(after["token_ids"], before["token_ids"])
    expected = naive_search.greedy(model, {"source": SOURCE}, starts(6), END, LENGTH)
    assert_same(after, expected)
    model.set_weights(weights)
    again = found_by(model, {"source": SOURCE})
    np.testing.assert_array_equal(again["token_ids"], before["token_ids"])
    assert _loops(model) == [loop]
    assert _traces(loop) == traces


@pytest.mark.slow
def test_adapters_added_later_are_used():
    """They are other variables, which an earlier trace does not know."""
    model = stacked_models.lively_translator()
    before = found_by(model, {"source": SOURCE})
    head = model.layers[-1]
    while not hasattr(head, "enable_lora"):
        head = model.layers[model.layers.index(head) - 1]
    head.enable_lora(2)
    for weight in head.trainable_weights:
        weight.assign(np.random.default_rng(3).normal(size=weight.shape) * 2)
    after = found_by(model, {"source": SOURCE})
    assert not np.array_equal(after["token_ids"], before["token_ids"])
    expected = naive_search.greedy(model, {"source": SOURCE}, starts(6), END, LENGTH)
    assert_same(after, expected)


def _loops(model):
    """What was compiled for a model."""
    programs = _CACHES[model][None].programs
    return [x for (name, *_), x in programs.items() if name.startswith("search")]


def _traces(loop):
    count = getattr(loop, "experimental_get_tracing_count", None)
    return count() if count else None


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.function")
def test_shapes_are_not_traced_one_by_one():
    model = chain()
    for rows in range(1, 6):
        found_by(model, np.full((rows, 1), 2))
    (loop,) = _loops(model)
    assert _traces(loop) <= 2


def test_without_an_end_token_all_rows_go_on():
    found = found_by(chain(), np.asarray([[2], [7]]), end_token_id=None)
    assert found["lengths"].tolist() == [[LENGTH], [LENGTH]]
    assert found["token_ids"][0, 0, :5].tolist() == [4, 5, 6, END, 0]


def test_a_ragged_tensor_is_padded(translator):
    tf = pytest.importorskip("tensorflow")
    rows = [row[row > 0].tolist() for row in SOURCE]
    found = found_by(translator, {"source": tf.ragged.constant(rows)})
    expected = found_by(translator, {"source": SOURCE})
    np.testing.assert_array_equal(found["token_ids"], expected["token_ids"])


def test_each_set_of_arguments_has_a_loop_of_its_own():
    model = chain()
    for length in (3, 5, 3):
        found = found_by(model, np.full((1, 1), 8), max_new_tokens=length)
        assert found["token_ids"].shape[-1] == length
    found = found_by(model, np.full((1, 1), 2), max_new_tokens=5, end_token_id=4)
    assert found["lengths"].tolist() == [[1]]
    assert len(_loops(model)) == 3


def test_a_model_is_let_go():
    model = chain()
    found_by(model, np.full((1, 1), 2))
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ({}, {}, "keys.*'source', 'target'.*Received: inputs with keys"),
        ({"source": SOURCE, "text": SOURCE}, {}, "keys.*'source', 'text'"),
        ({"target": SOURCE}, {}, r"\['source'\].*Received: inputs with keys"),
        ({"source": SOURCE[0]}, {}, r"'source' must have shape.*shape=\(5,\)"),
        ({"source": SOURCE + V}, {}, r"'source' must be in \[0, 13\).*id=\d+"),
        ({"source": SOURCE - 1}, {}, r"'source' must be in \[0, 13\).*id=-1"),
        (
            {"source": SOURCE, "target": SOURCE + V},
            {},
            r"'target' must be in \[0, 13\).*id=\d+",
        ),
        ({"source": SOURCE.astype("int64") + 2**32}, {}, r"\[0, 13\).*id=4294967"),
        ({"source": None}, {}, "'source' must not be None"),
        ({"source": SOURCE, "target": SOURCE[:2]}, {}, "same batch size.*'target': 2"),
        ({"source": SOURCE, "target": SOURCE[:, :0]}, {}, r"shape=\(6, 0\)"),
        ({"source": SOURCE}, {"start_token_id": 2.5}, "must be ints.*=.*2.5"),
        ({"source": SOURCE}, {"end_token_id": "3"}, "must be ints.*end_token_id="),
        ({"source": SOURCE}, {"start_token_id": None}, "start_token_id=None"),
        ({"source": SOURCE}, {"start_token_id": V}, r"\[0, 13\).*start_token_id=13"),
        ({"source": [["a", "b"]]}, {}, "'source' must have dtype int32.*str"),
        ({"source": SOURCE * 1.0}, {}, "'source' must have dtype int32.*float64"),
        ({"source": SOURCE}, {"end_token_id": -1}, r"\[0, 13\).*end_token_id=-1"),
        ({"source": SOURCE}, {"max_new_tokens": 0}, "max_new_tokens=0"),
        ({"source": SOURCE}, {"target": "words"}, "one of.*target='words'"),
        ({"source": SOURCE}, {"min_new_tokens": 2.5}, "min_new_tokens=2.5"),
        (
            {"source": SOURCE},
            {"min_new_tokens": LENGTH + 1},
            "min_new_tokens=13, max_new_tokens=12",
        ),
        (
            {"source": SOURCE},
            {"banned_token_ids": range(V)},
            "leave at least one token.*=13, vocabulary_size=13",
        ),
        (
            {"source": SOURCE},
            {
                "banned_token_ids": [x for x in range(V) if x != END],
                "min_new_tokens": 1,
            },
            "leave at least one token.*not be an end token",
        ),
        ({"source": SOURCE}, {"prefix": [0, 5]}, r"padding \(0\) only at its end"),
        (
            {"source": SOURCE},
            {"prefix": [5] * 13},
            "not be longer than `max_new_tokens`",
        ),
        (
            {"source": SOURCE},
            {"prefix": [5], "banned_token_ids": [5]},
            "not contain a banned id",
        ),
        (
            {"source": SOURCE},
            {"prefix": [5, END], "min_new_tokens": 2},
            "an end token among the first `min_new_tokens`",
        ),
    ],
)
def test_bad_input(translator, inputs, options, message):
    with pytest.raises(ValueError, match=message):
        found_by(translator, inputs, **options)


def test_inside_a_compiled_function(translator):
    tf = pytest.importorskip("tensorflow")
    with pytest.raises(ValueError, match="'source' must be an eager tensor"):
        tf.function(lambda x: found_by(translator, {"source": x}))(SOURCE)


def test_what_cannot_be_decoded():
    class Subclassed(keras.Model):
        def call(self, inputs):
            return inputs

    with pytest.raises(ValueError, match="Functional.*Received: model="):
        found_by(Subclassed(), SOURCE)
    with pytest.raises(
        ValueError, match="20 learned positions.*take 25.*max_new_tokens=21"
    ):
        found_by(
            stacked_models.make("language model"), {"target": SOURCE}, max_new_tokens=21
        )
