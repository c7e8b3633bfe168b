"""Pruning half of the heads of a trained translator: quality, size and speed.

    python examples/translation.py
    python benchmarks/pruning.py runs/translation/0a1b2c3d

Takes the folder of a finished run of that example, computes the importance of each head
on some of its training pairs, and prunes half of all heads: the least important ones,
the most important ones, and a random half, three times. At least one head of each layer
remains. The pruned models are not trained further.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))

import keras
import translation

from keras_attn import inspection, serving, text, training


def half_of(names_and_heads):
    """Return the first half of the heads by layer, leaving one head per layer."""
    total, remaining, pruned = len(names_and_heads), {}, {}
    for name, _ in names_and_heads:
        remaining[name] = remaining.get(name, 0) + 1
    for name, head in names_and_heads:
        if sum(map(len, pruned.values())) == total // 2:
            break
        if remaining[name] > 1:
            remaining[name] -= 1
            pruned.setdefault(name, []).append(head)
    return pruned


def plans_of(importance):
    """Return the heads to prune, by layer, for each way of choosing them."""
    heads = [(name, h) for name, x in importance.items() for h in range(len(x))]
    ascending = sorted(heads, key=lambda head: importance[head[0]][head[1]])
    plans = {
        "all": {},
        "least important pruned": half_of(ascending),
        "most important pruned": half_of(ascending[::-1]),
    }
    for seed in range(3):
        shuffled = random.Random(seed).sample(heads, len(heads))
        plans[f"random half pruned, {seed}"] = half_of(shuffled)
    return plans


def print_importance(importance):
    """Print the importance of each head, as a share of the largest."""
    print("Importance of each head, as a share of the largest:")
    largest = max(x.max() for x in importance.values())
    for name, values in importance.items():
        print(f"  {name}: {' '.join(f'{value / largest:.3f}' for value in values)}")


def median_seconds(calls, batch, rounds):
    """Return the median seconds of a forward pass of each model; they alternate."""
    seconds = {name: [] for name in calls}
    for model in calls.values():
        model.predict_on_batch(batch)
    for _ in range(rounds):
        for name, model in calls.items():
            start = time.perf_counter()
            model.predict_on_batch(batch)
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", help="folder of a finished run")
    parser.add_argument("--batches", type=int, default=20, help="for the importance")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    folder = pathlib.Path(arguments.run)
    settings = argparse.Namespace(**json.loads((folder / "settings.json").read_text()))
    train_pairs, valid_pairs = translation.read_corpus(settings)
    tokenizers = [
        text.load_tokenizer(folder / f"{side}.tokenizer")
        for side in ("source", "target")
    ]
    data = text.translation_dataset(
        train_pairs, *tokenizers, batch_tokens=settings.batch_tokens, seed=0
    )
    model = translation.build(settings, *tokenizers, data.report.num_batches)
    model.load_weights(folder / "weights.weights.h5")
    importance = inspection.head_importance(
        model, data.take(arguments.batches), training.MaskedCrossentropy()
    )
    sources, references = zip(*valid_pairs)
    rows, pruned_models = {}, {}
    for name, plan in plans_of(importance).items():
        pruned = inspection.prune_heads(model, plan)
        translator = serving.Translator(
            pruned,
            *tokenizers,
            max_new_tokens=settings.max_tokens,
            max_source_length=settings.max_tokens,
        )
        bleu = training.BleuCallback(
            translator, list(sources), list(references), batch_size=100
        )
        counts = inspection.count_parameters(pruned)
        rows[name] = bleu.evaluate(), counts["attention"], counts["total"]
        pruned_models[name] = pruned
    print_importance(importance)
    batch = next(iter(data))[0]
    medians = median_seconds(pruned_models, batch, arguments.rounds * 4)
    print("\n| heads | BLEU | attention parameters | all | forward pass, faster by |")
    print("|---|---|---|---|---|")
    for name, (score, attention, total) in rows.items():
        ratio = medians["all"] / medians[name]
        print(f"| {name} | {score:.1f} | {attention:,} | {total:,} | {ratio:.2f} |")


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    main()
