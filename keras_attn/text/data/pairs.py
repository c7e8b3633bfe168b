"""Sentence pairs, from a file or from the user's own iterable."""

import gzip
import logging
import os
import zlib

_log = logging.getLogger("keras_attn")


def read_pairs(path, source_column=0, target_column=1, on_bad="raise"):
    """Reads sentence pairs from a tab-separated file, plain or gzipped.

    The file has no header and no quoting: a tab always ends a column. Columns other
    than the two asked for are ignored. Lines end with `\\n` or `\\r\\n`.

    Args:
        path: Path of the file, UTF-8. One that ends in `.gz` or begins like a gzip file
            is unpacked.
        source_column: Number of the source column, from 0.
        target_column: Number of the target column, from 0.
        on_bad: What to do with a line that is not UTF-8, lacks a column or has an empty
            side: `"raise"`, or `"skip"`, which logs how many and which.

    Returns:
        A list of `(source, target)`, both `str`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is empty or no whole gzip file; with the line number, if
            a line is bad; if all lines are skipped.

    Example:
        pairs = read_pairs("train.tsv.gz")
    """
    for name, column in (("source", source_column), ("target", target_column)):
        if isinstance(column, bool) or not isinstance(column, int) or column < 0:
            raise ValueError(
                f"Expected {name}_column to be a whole number of at least 0. "
                f"Received: {name}_column={column!r}"
            )
    path = os.fspath(path)
    lines = _lines(path)
    if not lines:
        raise ValueError(
            f"Expected a file with sentence pairs, found it empty. Received: "
            f"path={path!r}"
        )

    def parse(line):
        try:
            columns = line.decode("utf-8").split("\t")
        except UnicodeDecodeError:
            return None, "is not UTF-8"
        if len(columns) <= max(source_column, target_column):
            count = f"{len(columns)} column" + "s" * (len(columns) != 1)
            return None, f"has only {count}, separated by tabs"
        return (columns[source_column], columns[target_column]), None

    return _keep_good(map(parse, lines), "line", f"path={path!r}", on_bad, first=1)


def checked_pairs(pairs, on_bad="raise"):
    """The same for an iterable of `(source, target)`; problems are named by index."""

    def parse(pair):
        if (
            not isinstance(pair, list | tuple)
            or len(pair) != 2
            or not all(isinstance(side, str) for side in pair)
        ):
            return None, f"is not two str but {pair!r:.60}"
        return tuple(pair), None

    try:
        parsed = map(parse, pairs)
    except TypeError:
        raise ValueError(
            "Expected pairs as a path or as an iterable of (source, target). "
            f"Received: pairs={pairs!r:.60}"
        ) from None
    return _keep_good(parsed, "pair", "pairs", on_bad, first=0)


def _lines(path):
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"Expected a file with sentence pairs, found none. Received: path={path!r}"
        )
    if os.path.isdir(path):
        raise IsADirectoryError(
            f"Expected a file with sentence pairs, found a folder. "
            f"Received: path={path!r}"
        )
    with open(path, "rb") as file:
        content = file.read()
    if content and (path.endswith(".gz") or content.startswith(b"\x1f\x8b")):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(
                f"Expected a whole gzip file, found it damaged ({error}). "
                f"Received: path={path!r}"
            ) from error
    content = content.removeprefix(b"\xef\xbb\xbf")
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def _keep_good(parsed, unit, received, on_bad, first):
    """Keeps the pairs without a problem; raises or logs those with one."""
    if on_bad not in ("raise", "skip"):
        raise ValueError(
            f"Expected on_bad to be 'raise' or 'skip'. Received: on_bad={on_bad!r}"
        )
    good, bad = [], []
    for number, (pair, problem) in enumerate(parsed, first):
        if pair:
            empty = [
                n
                for n, s in zip(("source", "target"), pair, strict=True)
                if not s.strip()
            ]
            problem = f"has an empty {empty[0]} side" if empty else None
        if problem is None:
            good.append(pair)
        elif on_bad == "raise":
            raise ValueError(
                f"Expected two sentences a {unit}, but {unit} {number} {problem}. "
                f"Received: {received}"
            )
        else:
            bad.append(f"{unit} {number} {problem}")
    if bad:
        shown = "; ".join(bad[:5]) + ("; ..." if len(bad) > 5 else "")
        _log.warning("Skipped %d of %d: %s", len(bad), len(good) + len(bad), shown)
    if not good:
        raise ValueError(
            f"Expected at least one sentence pair, found none. Received: {received}"
        )
    return good
