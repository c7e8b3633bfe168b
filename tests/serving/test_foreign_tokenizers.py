"""Tokenizers of other libraries, which the served models refuse by name."""

import pytest
from small_models import language_model

from keras_attn import models, serving

SIZES = {"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 8, "num_heads": 2}


class BertTokenizer:
    """A stand-in for the tokenizer of a different library."""

    padding_id, start_token_id, end_token_id, vocabulary_size = 0, 1, 2, 5

    def __call__(self, texts):
        return [[3] for _ in texts]


def text_classifier():
    return models.text_classifier(9, 2, **SIZES)


def translator():
    return models.transformer_translator(9, **SIZES)


@pytest.mark.parametrize(
    "make_model, function, argument",
    [
        (text_classifier, serving.TextModel, "tokenizer"),
        (text_classifier, serving.export_text_model, "tokenizer"),
        (lambda: language_model(9), serving.TextGenerator, "tokenizer"),
        (lambda: language_model(9), serving.export_language_model, "tokenizer"),
        (translator, serving.Translator, "source_tokenizer"),
        (translator, serving.export_translator, "source_tokenizer"),
    ],
)
@pytest.mark.parametrize("tokenizer", [BertTokenizer(), None])
def test_refused_by_name(make_model, function, argument, tokenizer, tmp_path):
    path = (tmp_path / "export",) if "export" in function.__name__ else ()
    message = f"Expected {argument} to be a tokenizer of `keras_attn.text`.*Received: "
    with pytest.raises(TypeError, match=message + ".*" + type(tokenizer).__name__):
        function(make_model(), *path, tokenizer)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("function", [serving.Translator, serving.export_translator])
def test_a_target_tokenizer_is_refused_by_name(function, tokenizers, tmp_path):
    path = (tmp_path / "export",) if "export" in function.__name__ else ()
    model = models.transformer_translator(99, **SIZES)
    with pytest.raises(TypeError, match="Expected target_tokenizer .*BertTokenizer"):
        function(model, *path, tokenizers["word"], BertTokenizer())
    assert not list(tmp_path.iterdir())
