"""BLEU of generated text, in the history of `model.fit`."""

import keras


class BleuCallback(keras.callbacks.Callback):
    """Translates held-out sentences as training goes on and logs their BLEU.

    The score goes into the logs of the epoch, and so into the history that
    `model.fit` returns, its progress line, and every callback that comes AFTER this
    one in the list: put `EarlyStopping(monitor="val_bleu", mode="max")` and
    `ModelCheckpoint` behind it.

    The first epoch of a `fit`, every epoch whose number (from 1) is a multiple of
    `every`, and the last one asked for are scored. The epochs between carry the last
    score, so that the lists of the history stay aligned; `EarlyStopping` counts those
    epochs in its patience.

    Args:
        translate: Callable that takes a list of source sentences and returns a list
            of as many translations, for instance a function that closes over the
            model and its tokenizers. It sees the weights as they are at the end of
            the epoch.
        sources: List of source sentences.
        references: List of their translations, one for each.
        every: Number of epochs from one score to the next, a positive integer.
        batch_size: Number of sentences in one call of `translate`.
        name: Key in the logs.
        verbose: 0 is silent, 1 shows a progress bar, 2 one line an epoch.
        tokenize: Tokenizer of sacrebleu, such as "13a", "char" or "ko-mecab"; None is
            sacrebleu's default.

    Attributes:
        translations: The last translations, a list of strings in the order of
            `sources`; None before the first score.
        score: Their BLEU, a float from 0 to 100; None before the first score.

    Raises:
        ImportError: If sacrebleu is not installed.
        ValueError: If there are no sources, if the lists differ in length, if `every`
            or `batch_size` is below 1, or if `translate` returns another number of
            sentences than it was given.

    Example:

    >>> bleu = BleuCallback(translate, sources, references, every=5)
    >>> history = model.fit(dataset, epochs=20, callbacks=[bleu])
    >>> history.history["val_bleu"][-1]

    References:
        Papineni et al., 2002, https://aclanthology.org/P02-1040
        Post, 2018, https://arxiv.org/abs/1804.08771
    """

    def __init__(
        self,
        translate,
        sources,
        references,
        every=1,
        batch_size=64,
        name="val_bleu",
        verbose=1,
        tokenize=None,
    ):
        super().__init__()
        if not callable(translate):
            raise ValueError(
                "`translate` must be callable: list of strings to list of strings. "
                f"Received: translate={translate!r}"
            )
        sources, references = _as_list(sources), _as_list(references)
        for argument, texts in (("sources", sources), ("references", references)):
            if isinstance(texts, str) or not all(isinstance(t, str) for t in texts):
                raise ValueError(
                    f"`{argument}` must be a list of str. "
                    f"Received: {argument}={texts!r:.80}"
                )
        self.sources, self.references = sources, references
        if not self.sources or len(self.sources) != len(self.references):
            raise ValueError(
                "Expected one reference for each source, and at least one source. "
                f"Received: len(sources)={len(self.sources)}, "
                f"len(references)={len(self.references)}"
            )
        for argument, value in (("every", every), ("batch_size", batch_size)):
            if value < 1:
                raise ValueError(
                    f"`{argument}` must be at least 1. Received: {argument}={value}"
                )
        # Told now, not after the first epoch.
        self._metric = _bleu(tokenize)
        self.translate = translate
        self.every = every
        self.batch_size = batch_size
        self.name = name
        self.verbose = verbose
        self.tokenize = tokenize
        self.translations = None
        self.score = None

    def on_train_begin(self, logs=None):
        self.score = None

    def on_epoch_end(self, epoch, logs=None):
        last = epoch + 1 == (self.params or {}).get("epochs")
        if self.score is None or last or (epoch + 1) % self.every == 0:
            self.score = self.evaluate()
        if logs is not None:
            logs[self.name] = self.score

    def evaluate(self):
        """Translates all sources and returns their BLEU, a float from 0 to 100."""
        if self.verbose == 1:
            print()  # the progress bar of `fit` stands on this line
        bar = keras.utils.Progbar(
            len(self.sources),
            verbose=self.verbose,
            stateful_metrics=[self.name],
            unit_name="sentence",
        )
        translations, score = [], None
        for start in range(0, len(self.sources), self.batch_size):
            batch = self.sources[start : start + self.batch_size]
            output = list(self.translate(batch))
            if len(output) != len(batch):
                raise ValueError(
                    "`translate` must return one translation for each sentence. "
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


def _as_list(texts):
    return texts if isinstance(texts, str) else list(texts)


def _bleu(tokenize):
    try:
        from sacrebleu.metrics import BLEU
    except ImportError as error:
        raise ImportError(
            "BleuCallback needs sacrebleu: pip install sacrebleu."
        ) from error
    return BLEU(tokenize=tokenize)
