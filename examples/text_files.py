"""Text files to learn from: found, read, split by file, and cut to windows."""

import hashlib
import itertools
import pathlib
import sysconfig

import numpy as np

# Not a library's own sources, or tables rather than code.
SKIPPED_FOLDERS = {
    "__pycache__",
    "dist-packages",
    "encodings",
    "idle_test",
    "site-packages",
    "test",
    "tests",
}


def standard_library():
    """The Python files of the standard library, without tests."""
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    return [
        path
        for path in sorted(folder.rglob("*.py"))
        if SKIPPED_FOLDERS.isdisjoint(path.relative_to(folder).parts)
    ]


def files_of(paths):
    """The files at `paths`, and all in the folders there.

    Raises:
        FileNotFoundError: where there is nothing at a path.
    """
    found = []
    for path in map(pathlib.Path, paths):
        if not path.exists():
            raise FileNotFoundError(
                f"Expected a text file or a folder of them. Received: path={path}"
            )
        inside = path.rglob("*") if path.is_dir() else [path]
        found += sorted(each for each in inside if each.is_file())
    return found


def read_split(paths, max_bytes, valid_share, seed):
    """Texts to train on and texts to validate with, no file in both.

    The order of the files, which decides who is taken and who is held out, comes from
    their contents and the seed alone. So it is the same wherever the files lie, and
    copies of a file count once. What is blank or not UTF-8 is left out.

    Args:
        paths: files.
        max_bytes: int, read no more than so much: files that would not fit are left
            out.
        valid_share: float, which part of the bytes to hold out, one file at least.
        seed: int, another one gives another split.

    Returns:
        Two lists of `str`.

    Raises:
        ValueError: for fewer than two files.
    """
    by_order = {}
    for path in paths:
        content = path.read_bytes()
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            continue
        if text.strip():
            by_order[hashlib.sha256(b"%d " % seed + content).digest()] = text
    texts, size = [], 0
    for _, text in sorted(by_order.items()):
        if size + len(text.encode()) <= max_bytes:
            texts.append(text)
            size += len(text.encode())
    if len(texts) < 2:
        raise ValueError(
            "Expected two text files at least, to hold one out. "
            f"Received: {len(texts)} of at most {max_bytes} bytes in all"
        )
    upto = itertools.accumulate(len(text.encode()) for text in texts)
    held_out = 1 + sum(total < size * valid_share for total in upto)
    held_out = min(held_out, len(texts) - 1)
    return texts[held_out:], texts[:held_out]


def windows(documents, start_token_id, length, batch_size, overlap=0):
    """Documents one after another, cut to windows for a language model.

    Every token is a label in one window, but for the start tokens, which are in none.

    Args:
        documents: list of int arrays `(T,)`, ids without the start token, not 0.
        start_token_id: int, put before each document.
        length: int, tokens of a window.
        batch_size: int, the number of windows is made a multiple of it by windows of
            padding: each new shape of a batch would be compiled anew.
        overlap: int below `length`, with how many tokens of the window before a window
            begins. They are read there but are no labels, so that every label but
            those of the first window has more than so many tokens before it.

    Returns:
        Inputs and labels, int32 `(N, length)`; labels of 0 are not to be foretold.
    """
    start = np.array([start_token_id], "int32")
    stream = np.concatenate([part for ids in documents for part in (start, ids)])
    step = length - overlap
    count = max(1, -(-(len(stream) - 1 - overlap) // step))
    count = -(-count // batch_size) * batch_size
    stream = np.pad(stream, (0, count * step + overlap + 1 - len(stream)))
    rows = np.lib.stride_tricks.sliding_window_view(stream, length + 1)[::step]
    inputs, labels = rows[:, :-1].copy(), rows[:, 1:].copy()
    labels[1:, :overlap] = 0
    return inputs, np.where(labels == start_token_id, 0, labels)
