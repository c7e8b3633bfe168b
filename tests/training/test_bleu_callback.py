import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import sacrebleu

from keras_attn.training import BleuCallback

# Raised when Keras reads a TensorFlow variable, which supports NumPy 2 only in part.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")

SOURCES = [f"satz {i}" for i in range(5)]
REFERENCES = [f"this is sentence number {i} of a few" for i in range(5)]


def wrong_tail(wrong: int) -> Callable[[list[str]], list[str]]:
    """Return a `translate` function whose last `wrong` translations are wrong."""
    good = dict(zip(SOURCES, REFERENCES, strict=True))
    bad = dict.fromkeys(SOURCES[5 - wrong :], "that was another one, I think")
    return lambda batch: [{**good, **bad}[source] for source in batch]


def fit(
    callbacks: list[keras.callbacks.Callback], epochs: int = 1, **kwargs: Any
) -> keras.callbacks.History:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    x = np.ones((4, 2), "float32")
    return model.fit(
        x, x[:, :1], epochs=epochs, callbacks=callbacks, **{"verbose": 0, **kwargs}
    )


def expected(wrong: int, **kwargs: Any) -> float:
    return sacrebleu.corpus_bleu(
        wrong_tail(wrong)(SOURCES), [REFERENCES], **kwargs
    ).score


def test_history_contains_the_sacrebleu_score() -> None:
    batches = []

    def translate(batch: list[str]) -> list[str]:
        batches.append(len(batch))
        return wrong_tail(2)(batch)

    bleu = BleuCallback(translate, SOURCES, REFERENCES, batch_size=2, verbose=0)
    history = fit([bleu]).history
    assert history["val_bleu"] == [pytest.approx(expected(2))]
    assert 0 < history["val_bleu"][0] < 100
    assert batches == [2, 2, 1]
    assert bleu.translations == wrong_tail(2)(SOURCES)
    assert bleu.score == history["val_bleu"][0]


def test_tokenize_is_passed_to_sacrebleu() -> None:
    bleu = BleuCallback(
        wrong_tail(2), SOURCES, REFERENCES, tokenize="char", name="chars", verbose=0
    )
    score = fit([bleu]).history["chars"][0]
    assert score == pytest.approx(expected(2, tokenize="char"))
    assert score != pytest.approx(expected(2))


def test_first_last_and_every_nth_epoch_are_scored() -> None:
    scored = []

    def translate(batch: list[str]) -> list[str]:
        scored.append(len(scored))
        return wrong_tail(4 - len(scored))(batch)

    bleu = BleuCallback(translate, SOURCES, REFERENCES, every=3, verbose=0)
    history = fit([bleu], epochs=7).history
    a, b, c, d = (expected(wrong) for wrong in (3, 2, 1, 0))
    # Epochs 1, 3, 6 and 7 are scored, the others repeat the previous score.
    assert history["val_bleu"] == [pytest.approx(x) for x in (a, a, b, b, b, c, d)]
    assert len(history["loss"]) == len(history["val_bleu"])


def test_later_callbacks_see_the_score(tmp_path: Path) -> None:
    wrong = iter([4, 1, 1, 1, 1, 0])
    bleu = BleuCallback(
        lambda batch: wrong_tail(next(wrong))(batch), SOURCES, REFERENCES, verbose=0
    )
    stop = keras.callbacks.EarlyStopping("val_bleu", mode="max", patience=2)
    path = str(tmp_path / "{epoch}-{val_bleu:.0f}.weights.h5")
    best = keras.callbacks.ModelCheckpoint(
        path, "val_bleu", mode="max", save_best_only=True, save_weights_only=True
    )
    history = fit([bleu, stop, best], epochs=6).history
    assert len(history["val_bleu"]) == 4
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == [f"{n}-{expected(w):.0f}.weights.h5" for n, w in ((1, 4), (2, 1))]


def test_resumed_training_scores_its_first_epoch(tmp_path: Path) -> None:
    calls = []
    translate = lambda batch: calls.append(1) or wrong_tail(1)(batch)  # noqa: E731
    bleu = BleuCallback(translate, SOURCES, REFERENCES, every=5, verbose=0)
    history = fit([bleu], epochs=10, initial_epoch=6).history
    assert len(history["val_bleu"]) == 4
    assert len(calls) == 2  # epochs 7 (no score yet) and 10


def test_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    bleu = BleuCallback(wrong_tail(0), SOURCES, REFERENCES, batch_size=2)
    fit([bleu], verbose=1)
    out = capsys.readouterr().out
    assert "5/5" in out and "sentence" in out
    assert out.count("val_bleu: 100.0") == 2  # of the callback's bar and of fit's
    bleu = BleuCallback(wrong_tail(0), SOURCES, REFERENCES, verbose=0)
    fit([bleu])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "arguments, message",
    [
        (([], []), r"Received: len\(sources\)=0"),
        ((SOURCES, REFERENCES[:3]), r"len\(sources\)=5, len\(references\)=3"),
        ((SOURCES, REFERENCES, 0), "Received: every=0"),
        ((SOURCES, REFERENCES, 1, 0), "Received: batch_size=0"),
    ],
)
def test_invalid_arguments_raise(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BleuCallback(wrong_tail(0), *arguments)


def test_invalid_translate_raises() -> None:
    bleu = BleuCallback(lambda batch: batch[1:], SOURCES, REFERENCES, verbose=0)
    with pytest.raises(ValueError, match="Received: 4 translations of 5 sentences"):
        fit([bleu])
    with pytest.raises(ValueError, match="`translate` must be callable"):
        BleuCallback("model", SOURCES, REFERENCES)


def test_missing_sacrebleu_raises_in_the_constructor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ImportError, match="pip install sacrebleu"):
        BleuCallback(wrong_tail(0), SOURCES, REFERENCES)
