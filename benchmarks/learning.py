r"""Learning curves: how far each library's model gets in the same steps.

    python benchmarks/learning.py --task translation --pairs TRAIN.tsv.gz \
        --valid VALID.tsv.gz --seeds 0 1 2
    python benchmarks/learning.py --task image

All models of a comparison see the same batches of token ids (or images) in the same
order, with the same loss, optimizer and learning rate, each in a process of its own.
The initial weights and the order of the batches depend on the seed. Tasks:

    translation      sentence pairs; the peers are PyTorch's `nn.Transformer`,
                     KerasHub's blocks put together as in its guide, and Marian of
                     `transformers`
    language-model   windows of the text of one column of `--pairs`, or without it of
                     the source code of the standard library; the peer is GPT-2 of
                     `transformers`
    classifier       snippets of the standard library, by package; the peer is the text
                     classifier of Keras's examples
    image            the handwritten digits of scikit-learn; the peer is the vision
                     transformer of Keras's examples

The results are `curves.json`, `curves.png` and a table: validation loss (mean
cross-entropy without label smoothing, in nats), the steps and the seconds until a model
reaches the last loss of each peer, as a share of the peer's, parameters, and BLEU and
chrF of greedy translations. Seconds count training only, compilation included. Runs
that have finished are not repeated, so that a comparison can be extended.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

import learning_peers

HERE = pathlib.Path(__file__).parent


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", choices=learning_peers.MODELS, required=True)
    parser.add_argument("--pairs", metavar="FILE", help="training sentence pairs")
    parser.add_argument("--valid", metavar="FILE", help="held-out sentence pairs")
    parser.add_argument("--column", type=int, default=0, help="of a language model")
    parser.add_argument("--models", nargs="+", help="default: all of the task")
    parser.add_argument("--vocabulary", type=int, default=3000)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--inner", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--every", type=int, default=250, help="steps per validation")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--warmup", type=int, default=1000, help="steps to the peak")
    parser.add_argument("--smoothing", type=float, default=0.1, help="of the labels")
    parser.add_argument("--optimizer", choices=learning_peers.OPTIMIZERS)
    parser.add_argument("--jit", action="store_true", help="compile Keras with XLA")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--output", default="runs/learning", help="folder")
    arguments = parser.parse_args()
    if arguments.task == "translation" and not (arguments.pairs and arguments.valid):
        parser.error("--task translation requires --pairs and --valid")
    if arguments.steps % arguments.every:
        parser.error("--steps must be a multiple of --every")
    arguments.optimizer = arguments.optimizer or "adam"
    arguments.models = arguments.models or learning_peers.MODELS[arguments.task]
    unknown = set(arguments.models) - set(learning_peers.MODELS[arguments.task])
    if unknown:
        names = ", ".join(learning_peers.MODELS[arguments.task])
        parser.error(f"--models must be among {names}. Received: {sorted(unknown)}")
    return arguments


def run(script, settings, path):
    """Run a script of `learning_peers` in a process of its own, unless it has run."""
    if not path.exists():
        subprocess.run(
            [sys.executable, HERE / "learning_peers" / script, json.dumps(settings)],
            check=True,
        )


def steps_to(curve, loss, column):
    """Return the value of a column where the curve falls to a loss, interpolated."""
    for before, after in zip([None, *curve], curve):
        if after["loss"] > loss:
            continue
        if before is None or before["loss"] == after["loss"]:
            return after[column]
        share = (before["loss"] - loss) / (before["loss"] - after["loss"])
        return before[column] + share * (after[column] - before[column])
    return None


def mean_curve(runs):
    """Return the mean over seeds of the validation curves of one model."""
    return [
        {key: statistics.fmean(point[key] for point in points) for key in points[0]}
        for points in zip(*(run["curve"] for run in runs))
    ]


def print_table(results):
    """Print a row per model, and the steps and seconds to each peer's last loss."""
    curves = {name: mean_curve(runs) for name, runs in results.items()}
    ours, peers = next(iter(curves)), list(curves)[1:]
    print("| model | parameters | loss, by seed | mean | seconds | BLEU | chrF |")
    print("|---|---|---|---|---|---|---|")
    for name, runs in results.items():
        losses = " ".join(f"{run['curve'][-1]['loss']:.3f}" for run in runs)
        scores = [
            f"{statistics.fmean(run[score] for run in runs):.1f}"
            if score in runs[0]
            else ""
            for score in ("bleu", "chrf")
        ]
        last = curves[name][-1]
        cells = [name, f"{runs[0]['parameters']:,}", losses, f"{last['loss']:.3f}"]
        print("|", " | ".join([*cells, f"{last['seconds']:.0f}", *scores]), "|")
    for peer in peers:
        last = curves[peer][-1]
        shares = []
        for column in ("step", "seconds"):
            needed = steps_to(curves[ours], last["loss"], column)
            shares.append("-" if needed is None else f"{needed / last[column]:.2f}")
        print(f"{ours} reaches the last loss of {peer} in {shares[0]} of its steps, ")
        print(f"    {shares[1]} of its seconds")


def plot(results, path):
    """Save a picture of the mean curves against steps and against seconds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    for axes, column in zip(figure.subplots(1, 2), ("step", "seconds")):
        for name, runs in results.items():
            curve = mean_curve(runs)
            axes.plot(
                [point[column] for point in curve],
                [point["loss"] for point in curve],
                label=name,
            )
        axes.set_xlabel(column)
        axes.set_ylabel("validation loss")
        axes.legend()
    figure.savefig(path, dpi=120)


def main():
    arguments = parse_arguments()
    settings = vars(arguments)
    folder = pathlib.Path(arguments.output).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    results = {}
    for model in arguments.models:
        results[model] = []
        for seed in arguments.seeds:
            data = folder / f"data-{seed}"
            run_settings = {**settings, "seed": seed, "data": str(data)}
            run("data.py", run_settings, data / "task.json")
            path = folder / f"{model}-{arguments.optimizer}-{seed}.json"
            script = learning_peers.MODELS[arguments.task][model]
            run(script, {**run_settings, "model": model, "result": str(path)}, path)
            results[model].append(json.loads(path.read_text()))
    (folder / "curves.json").write_text(json.dumps(results, indent=1) + "\n")
    plot(results, folder / "curves.png")
    print_table(results)


if __name__ == "__main__":
    main()
