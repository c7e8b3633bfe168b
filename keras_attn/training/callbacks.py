"""Callbacks for `model.fit`."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras

__all__ = ["BleuCallback"]


class BleuCallback(keras.callbacks.Callback):
    """Callback that translates held-out sentences during training and logs BLEU.

    The score is added to the logs of the epoch, and so to the history that `model.fit`
    returns, to the progress bar, and to the logs of every callback that FOLLOWS this
    one in the list: list `EarlyStopping(monitor="val_bleu", mode="max")` and
    `ModelCheckpoint` after it.

    The score is computed after the first epoch of a `fit`, after every epoch whose
    number (from 1) is a multiple of `every`, and after the last epoch. All other epochs
    repeat the previous score, so that all lists of the history have the same length;
    `EarlyStopping` counts these epochs in its patience.

    Args:
        translate: Callable that takes a list of source sentences and returns a list of
            the same number of translations, for instance a function that closes over
            the model and its tokenizers. It is called with the weights at the end of
            the epoch.
        sources: Source sentences, an iterable of strings.
        references: Reference translations, one string per source sentence.
        every: Positive int. Number of epochs between two scores.
        batch_size: Positive int. Number of sentences per call of `translate`.
        name: String. Key of the score in the logs.
        verbose: 0 is silent, 1 shows a progress bar, 2 prints one line per epoch.
        tokenize: String. Tokenizer of sacrebleu, such as "13a", "char" or "ko-mecab".
            Defaults to `None`, which selects the default of sacrebleu.

    Attributes:
        translations: The latest translations, a list of strings in the order of
            `sources`; `None` before the first score.
        score: BLEU of these translations, a float from 0 to 100; `None` before the
            first score.

    Raises:
        ImportError: If sacrebleu is not installed.
        ValueError: If `translate` is not callable; if `sources` or `references` are not
            strings, are empty or differ in length; if `every` or `batch_size` is less
            than 1; or, during training, if `translate` returns a different number of
            sentences than it received.

    Example:
        >>> import keras
        >>> import numpy as np
        >>> from keras_attn import training
        >>> references = {"eins": "this is the first one", "zwei": "here is another"}
        >>> bleu = training.BleuCallback(
        ...     translate=lambda sentences: [references[s] for s in sentences],
        ...     sources=list(references),
        ...     references=references.values(),
        ...     verbose=0,
        ... )
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> history = model.fit(
        ...     np.ones((4, 2)), np.ones((4, 1)), callbacks=[bleu], verbose=0
        ... )
        >>> [round(score) for score in history.history["val_bleu"]]
        [100]

    References:
        Papineni et al., 2002, https://aclanthology.org/P02-1040
        Post, 2018, https://arxiv.org/abs/1804.08771
    """

    def __init__(
        self,
        translate: Callable[[list[str]], Sequence[str]],
        sources: Iterable[str],
        references: Iterable[str],
        every: int = 1,
        batch_size: int = 64,
        name: str = "val_bleu",
        verbose: int = 1,
        tokenize: str | None = None,
    ) -> None:
        super().__init__()
        if not callable(translate):
            raise ValueError(
                "`translate` must be callable, from a list of str to a list of str. "
                f"Received: translate={translate!r}"
            )
        self.sources: list[str] = _as_list("sources", sources)
        self.references: list[str] = _as_list("references", references)
        if not self.sources or len(self.sources) != len(self.references):
            raise ValueError(
                "Expected at least one source sentence and one reference per source. "
                f"Received: len(sources)={len(self.sources)}, "
                f"len(references)={len(self.references)}"
            )
        for argument, value in (("every", every), ("batch_size", batch_size)):
            if value < 1:
                raise ValueError(
                    f"`{argument}` must be at least 1. Received: {argument}={value}"
                )
        # Fail here if sacrebleu is missing, not after the first epoch.
        self._metric = _sacrebleu_metric(tokenize)
        self.translate = translate
        self.every = every
        self.batch_size = batch_size
        self.name = name
        self.verbose = verbose
        self.tokenize = tokenize
        self.translations: list[str] | None = None
        self.score: float | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.score = None

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        is_last = epoch + 1 == (self.params or {}).get("epochs")
        if self.score is None or is_last or (epoch + 1) % self.every == 0:
            self.score = self.evaluate()
        if logs is not None:
            logs[self.name] = self.score

    def evaluate(self) -> float:
        """Translate all source sentences and return their BLEU.

        Returns:
            Float from 0 to 100. The translations are stored in `translations`.

        Raises:
            ValueError: If `translate` returns a different number of sentences than it
                received.
        """
        if self.verbose == 1:
            print()  # end the line of the progress bar of `fit`
        bar = keras.utils.Progbar(
            len(self.sources),
            verbose=self.verbose,
            stateful_metrics=[self.name],
            unit_name="sentence",
        )
        translations: list[str] = []
        score = 0.0
        for start in range(0, len(self.sources), self.batch_size):
            batch = self.sources[start : start + self.batch_size]
            output = list(self.translate(batch))
            if len(output) != len(batch):
                raise ValueError(
                    "`translate` must return one translation per sentence. "
                    f"Received: {len(output)} translations of {len(batch)} sentences"
                )
            translations += output
            values = []
            if len(translations) == len(self.sources):
                score = self._metric.corpus_score(translations, [self.references]).score
                values = [(self.name, score)]
            bar.update(len(translations), values)
        self.translations = translations
        return score


def _as_list(argument: str, texts: Iterable[str]) -> list[str]:
    """Return `texts` as a list, or raise a ValueError if they are not strings."""
    as_list = [] if isinstance(texts, str) else list(texts)
    if isinstance(texts, str) or not all(isinstance(text, str) for text in as_list):
        received = texts if isinstance(texts, str) else as_list
        raise ValueError(
            f"`{argument}` must be a list of str. Received: {argument}={received!r:.80}"
        )
    return as_list


def _sacrebleu_metric(tokenize: str | None) -> Any:
    """Return a `sacrebleu.metrics.BLEU`, or raise an ImportError."""
    try:
        from sacrebleu.metrics import BLEU  # pyright: ignore[reportPrivateImportUsage]
    except ImportError as error:
        raise ImportError(
            "BleuCallback requires sacrebleu: pip install sacrebleu."
        ) from error
    return BLEU(tokenize=tokenize)
