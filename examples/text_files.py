"""Text files as training data: finding, reading, splitting by file, windowing."""

import hashlib
import itertools
import pathlib
import sysconfig

import numpy as np

# Tests, third-party packages, and tables rather than code.
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
    """Return the paths of the Python files of the standard library, without tests."""
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    return [
        path
        for path in sorted(folder.rglob("*.py"))
        if SKIPPED_FOLDERS.isdisjoint(path.relative_to(folder).parts)
    ]


def find_files(paths):
    """Return the files among `paths` and all files in the folders among them.

    Raises:
        FileNotFoundError: if a path does not exist.
    """
    files = []
    for path in map(pathlib.Path, paths):
        if not path.exists():
            raise FileNotFoundError(
                f"Expected a text file or a folder of them. Received: path={path}"
            )
        candidates = path.rglob("*") if path.is_dir() else [path]
        files += sorted(file for file in candidates if file.is_file())
    return files


def read_split(paths, max_bytes, valid_share, seed):
    """Read files; return training texts and held-out texts, with no file in both.

    The files are ordered by a hash of their contents and the seed, which decides which
    are read and which are held out. The split therefore does not depend on paths, and
    copies of a file count once. Blank files and files that are not UTF-8 are skipped.

    Args:
        paths: list of paths of files.
        max_bytes: int, maximum number of bytes to read. A file that would exceed it is
            skipped.
        valid_share: float, share of the bytes to hold out, at least one file.
        seed: int, seed of the order.

    Returns:
        A tuple `(train, valid)` of lists of `str`.

    Raises:
        ValueError: if fewer than two files are left.
    """
    by_hash = {}
    for path in paths:
        content = path.read_bytes()
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            continue
        if text.strip():
            by_hash[hashlib.sha256(b"%d " % seed + content).digest()] = text
    texts, size = [], 0
    for _, text in sorted(by_hash.items()):
        if size + len(text.encode()) <= max_bytes:
            texts.append(text)
            size += len(text.encode())
    if len(texts) < 2:
        raise ValueError(
            "Expected at least two text files, one for training and one held out. "
            f"Received: {len(texts)} within max_bytes={max_bytes}"
        )
    totals = itertools.accumulate(len(text.encode()) for text in texts)
    num_valid = 1 + sum(total < size * valid_share for total in totals)
    num_valid = min(num_valid, len(texts) - 1)
    return texts[num_valid:], texts[:num_valid]


def windows(documents, start_token_id, length, batch_size, overlap=0):
    """Concatenate documents and cut them into windows for a language model.

    Each token is a label in exactly one window, except for the start tokens, which are
    never labels.

    Args:
        documents: list of int arrays `(T,)`, nonzero ids without the start token.
        start_token_id: int, inserted before each document.
        length: int, number of tokens per window.
        batch_size: int. Windows of padding are appended until the number of windows is
            a multiple of it, since each batch shape is compiled separately.
        overlap: int below `length`, number of tokens that a window shares with the
            previous window. They are inputs but not labels there, so that each label,
            except those of the first window, has more than `overlap` tokens of context.

    Returns:
        Inputs and labels, int32 `(N, length)`. Labels of 0 are to be masked.
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
