"""The training loop, the validation and the translations that all models share."""

import json
import pathlib
import time

import numpy as np

__all__ = ["Task", "learning_rate", "train"]

MAX_NEW_TOKENS = 64


class Task:
    """The settings of a run, and the data that it reads.

    Attributes:
        settings: dict, the arguments of `benchmarks/learning.py`.
        sizes: dict, the vocabularies, lengths and classes of the data.
        is_token_task: bool, whether the labels are tokens, among which 0 is padding.
    """

    def __init__(self, argument):
        self.settings = json.loads(argument)
        self.folder = pathlib.Path(self.settings["data"])
        self.sizes = json.loads((self.folder / "task.json").read_text())
        self.is_token_task = self.settings["task"] in ("translation", "language-model")

    def batches(self, part):
        """Return a list of `(inputs, labels)` of NumPy arrays."""
        batches = []
        with np.load(self.folder / f"{part}.npz") as arrays:
            for key in arrays.files:
                index, name = key.split("/")
                if int(index) == len(batches):
                    batches.append({})
                batches[-1][name] = arrays[key]
        return [(batch, batch.pop("labels")) for batch in batches]


def learning_rate(step, settings):
    """Return the rate of a step, counted from 1: linear, then inverse square root."""
    warmup = settings["warmup"]
    return settings["rate"] * min(step / warmup, (warmup / step) ** 0.5)


def train(task, parameters, train_step, logits):
    """Train and validate a model; write the result.

    Args:
        task: `Task`.
        parameters: int, number of parameters.
        train_step: function `(inputs, labels, rate)` that makes an update and returns
            the loss as a float.
        logits: function from inputs to logits, both NumPy arrays.
    """
    settings = task.settings
    valid = task.batches("valid")
    curve, losses, seconds = [], [], 0.0
    for step, (inputs, labels) in enumerate(task.batches("train"), start=1):
        begin = time.perf_counter()
        losses.append(train_step(inputs, labels, learning_rate(step, settings)))
        seconds += time.perf_counter() - begin
        if step % settings["every"] == 0:
            point = {
                "step": step,
                "seconds": seconds,
                "training_loss": float(np.mean(losses)),
                **validate(task, valid, logits),
            }
            curve.append(point)
            losses = []
            print(settings["model"], settings["seed"], _rounded(point), flush=True)
    result = {"parameters": parameters, "curve": curve}
    if settings["task"] == "translation":
        result.update(translation_scores(task, logits))
    pathlib.Path(settings["result"]).write_text(json.dumps(result))


def validate(task, batches, logits):
    """Return the mean cross-entropy and accuracy over tokens (or batch elements)."""
    total = correct = count = 0
    for inputs, labels in batches:
        scores = logits(inputs).astype("float64")
        shifted = scores - scores.max(-1, keepdims=True)
        log_probs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        losses = -np.take_along_axis(log_probs, labels[..., None], -1)[..., 0]
        mask = labels != 0 if task.is_token_task else np.ones(labels.shape, bool)
        total += losses[mask].sum()
        correct += (scores.argmax(-1) == labels)[mask].sum()
        count += mask.sum()
    return {"loss": float(total / count), "accuracy": float(correct / count)}


def translation_scores(task, logits):
    """Return BLEU, chrF and the length ratio of greedy translations."""
    import sacrebleu

    from keras_attn import text

    tokenizers = [
        text.load_tokenizer(task.folder.parent / f"tokenizer-{side}") for side in (0, 1)
    ]
    pairs = json.loads((task.folder / "valid.json").read_text())
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]))
    translations = [""] * len(pairs)
    for begin in range(0, len(order), 64):
        rows = order[begin : begin + 64]
        ids = tokenizers[0].tokenize(
            [pairs[i][0] for i in rows], add_end=True, max_length=MAX_NEW_TOKENS
        )
        tokens = greedy(ids.to_tensor().numpy(), task.sizes, logits)
        for i, translation in zip(rows, tokenizers[1].detokenize(tokens)):
            translations[i] = translation
    references = [[reference for _, reference in pairs]]
    bleu = sacrebleu.corpus_bleu(translations, references)
    chrf = sacrebleu.corpus_chrf(translations, references)
    return {
        "bleu": bleu.score,
        "chrf": chrf.score,
        "length_ratio": bleu.sys_len / bleu.ref_len,
    }


def greedy(source, sizes, logits):
    """Return greedy token ids `(B, T)`, with 0 after the end token."""
    source = _pad(source)
    target = np.full((len(source), 1), sizes["start"], "int32")
    finished = np.zeros(len(source), bool)
    while target.shape[1] <= MAX_NEW_TOKENS and not finished.all():
        scores = logits({"source": source, "target": _pad(target)})
        tokens = scores[:, target.shape[1] - 1].argmax(-1)
        finished |= tokens == sizes["end"]
        tokens = np.where(finished, 0, tokens).astype("int32")
        target = np.concatenate([target, tokens[:, None]], axis=1)
    return target[:, 1:]


def _pad(ids, multiple=16):
    """Pad ids to one of a few lengths: a Keras model is traced for each."""
    return np.pad(ids, ((0, 0), (0, -ids.shape[1] % multiple)))


def _rounded(point):
    return {name: round(value, 3) for name, value in point.items()}
