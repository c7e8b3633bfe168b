"""Sentence pairs from a file or an iterable."""

import gzip
import logging
import os
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal

_log = logging.getLogger("keras_attn")

Pair = tuple[str, str]


def read_pairs(
    path: str | os.PathLike[str],
    source_column: int = 0,
    target_column: int = 1,
    on_bad: Literal["raise", "skip"] = "raise",
) -> list[Pair]:
    """Read sentence pairs from a tab-separated file, plain or gzipped.

    The file has no header and no quoting: a tab always ends a column. Columns other
    than the two given ones are ignored. Lines end with `\\n` or `\\r\\n`, or all of
    them with `\\r`.

    Args:
        path: Path of the file, UTF-8. It is decompressed if its name ends in `.gz` or
            it begins with the magic number of gzip.
        source_column: Index of the source column, from 0.
        target_column: Index of the target column, from 0.
        on_bad: Treatment of a line that is not UTF-8, lacks a column, has an empty side
            or contains a carriage return that does not end it: `"raise"` an error, or
            `"skip"` it and log the number of skipped lines and the first of them.

    Returns:
        A list of `(source, target)`, both `str`.

    Raises:
        FileNotFoundError: If the file does not exist.
        IsADirectoryError: If `path` is a folder.
        ValueError: If the file is empty or a damaged gzip file, if a line is bad (the
            error contains its number), or if all lines are skipped.

    Example:
        >>> import pathlib, tempfile
        >>> from keras_attn.text import read_pairs
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "pairs.tsv")
        ...     _ = path.write_text("a cat\\tune chatte\\na dog\\tun chien\\n")
        ...     pairs = read_pairs(path)
        >>> pairs
        [('a cat', 'une chatte'), ('a dog', 'un chien')]
    """
    for name, column in (("source", source_column), ("target", target_column)):
        if isinstance(column, bool) or not isinstance(column, int) or column < 0:
            raise ValueError(
                f"Expected {name}_column to be an integer of at least 0. "
                f"Received: {name}_column={column!r}"
            )
    path = os.fspath(path)
    lines = _read_lines(path)
    if not lines:
        raise ValueError(
            f"Expected a file with sentence pairs, but it is empty. Received: "
            f"path={path!r}"
        )

    def parse(line: bytes) -> tuple[Pair | None, str | None]:
        if b"\r" in line:
            # As likely a line end as a part of a sentence.
            return None, (
                "contains a carriage return (\\r) that does not end the line; convert "
                "all line ends of the file to \\n"
            )
        try:
            columns = line.decode("utf-8").split("\t")
        except UnicodeDecodeError:
            return None, "is not UTF-8"
        if len(columns) <= max(source_column, target_column):
            count = f"{len(columns)} column" + "s" * (len(columns) != 1)
            return None, f"has only {count}, separated by tabs"
        return (columns[source_column], columns[target_column]), None

    return _filter_pairs(map(parse, lines), "line", f"path={path!r}", on_bad, first=1)


def validate_pairs(
    pairs: Iterable[Any], on_bad: Literal["raise", "skip"] = "raise"
) -> list[Pair]:
    """Return the pairs of an iterable of `(source, target)`.

    Args:
        pairs: Iterable of two `str` each.
        on_bad: As in `read_pairs`; pairs are identified by their index.

    Raises:
        ValueError: If a pair is bad, or no pair is left.
    """

    def parse(pair: Any) -> tuple[Pair | None, str | None]:
        if (
            not isinstance(pair, list | tuple)
            or len(pair) != 2
            or not all(isinstance(side, str) for side in pair)
        ):
            return None, f"is not two str but {pair!r:.60}"
        return (pair[0], pair[1]), None

    try:
        parsed = map(parse, pairs)
    except TypeError:
        raise ValueError(
            "Expected pairs as a path or as an iterable of (source, target). "
            f"Received: pairs={pairs!r:.60}"
        ) from None
    return _filter_pairs(parsed, "pair", "pairs", on_bad, first=0)


def _read_lines(path: str) -> list[bytes]:
    """Return the lines of a plain or gzipped file, without line ends.

    A line ends with a line feed, before which carriage returns are dropped. If the file
    has no line feed, it ends with a carriage return.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"Expected an existing file with sentence pairs. Received: path={path!r}"
        )
    if os.path.isdir(path):
        raise IsADirectoryError(
            f"Expected a file with sentence pairs, but it is a folder. "
            f"Received: path={path!r}"
        )
    with open(path, "rb") as file:
        content = file.read()
    if content and (path.endswith(".gz") or content.startswith(b"\x1f\x8b")):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(
                f"Expected a complete gzip file, but it is damaged ({error}). "
                f"Received: path={path!r}"
            ) from error
    content = content.removeprefix(b"\xef\xbb\xbf")
    lines = content.split(b"\n" if b"\n" in content else b"\r")
    if not lines[-1]:
        lines.pop()
    return [line.rstrip(b"\r") for line in lines]


def _filter_pairs(
    parsed: Iterator[tuple[Pair | None, str | None]],
    unit: Literal["line", "pair"],
    received: str,
    on_bad: str,
    first: int,
) -> list[Pair]:
    """Return the valid pairs; raise an error for the others, or log them.

    Args:
        parsed: Tuples `(pair, problem)`, one of which is None.
        unit: The unit of the numbers in messages.
        received: The description of the pairs in error messages.
        on_bad: `"raise"` or `"skip"`.
        first: The number of the first pair.
    """
    if on_bad not in ("raise", "skip"):
        raise ValueError(
            f"Expected on_bad to be 'raise' or 'skip'. Received: on_bad={on_bad!r}"
        )
    valid, skipped = [], []
    for number, (pair, problem) in enumerate(parsed, first):
        if pair:
            empty = [
                name
                for name, sentence in zip(("source", "target"), pair, strict=True)
                if not sentence.strip()
            ]
            problem = f"has an empty {empty[0]} side" if empty else None
        if problem is None:
            valid.append(pair)
        elif on_bad == "raise":
            raise ValueError(
                f"Expected two sentences per {unit}, but {unit} {number} {problem}. "
                f"Received: {received}"
            )
        else:
            skipped.append(f"{unit} {number} {problem}")
    if skipped:
        shown = "; ".join(skipped[:5]) + ("; ..." if len(skipped) > 5 else "")
        total = len(valid) + len(skipped)
        _log.warning("Skipped %d of %d: %s", len(skipped), total, shown)
    if not valid:
        raise ValueError(
            f"Expected at least one sentence pair. Received: {received} without any"
        )
    return valid
