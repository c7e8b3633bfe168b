import gzip
import logging

import pytest

from keras_attn.text import read_pairs

ROWS = [("나는 간다", "I go"), ("a \u2028b", "c\x0bd"), ("x", "y")]


def write(path, content):
    path.write_bytes(content)
    return path


def tsv(rows):
    return "".join("\t".join(row) + "\n" for row in rows).encode()


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r", b"\r\r\n"])
@pytest.mark.parametrize("compress", [False, True])
def test_reads(tmp_path, ending, compress):
    content = tsv(ROWS).replace(b"\n", ending)
    # With and without a final line end, with a byte order mark, with both extensions.
    for number, data in enumerate(
        [content, content.removesuffix(ending), b"\xef\xbb\xbf" + content]
    ):
        data = gzip.compress(data) if compress else data
        for name in (f"{number}.tsv", f"{number}.tsv.gz")[: 1 + compress]:
            assert read_pairs(write(tmp_path / name, data)) == ROWS


def test_columns(tmp_path):
    path = write(tmp_path / "a", tsv([("1", "a", "b"), ("2", "c", "d", "e")]))
    assert read_pairs(path, 2, 1) == [("b", "a"), ("d", "c")]
    with pytest.raises(ValueError, match="line 1 has only 3 columns"):
        read_pairs(path, 0, 3)
    for column in (-1, "0", True, None):
        with pytest.raises(ValueError, match="Received: target_column="):
            read_pairs(path, 0, column)


def test_missing_and_empty(tmp_path):
    with pytest.raises(FileNotFoundError, match="Received: path='.*nowhere"):
        read_pairs(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        read_pairs(tmp_path)
    for data in (b"", b"\xef\xbb\xbf", gzip.compress(b"")):
        with pytest.raises(ValueError, match="it is empty. Received: path="):
            read_pairs(write(tmp_path / "empty", data))
    with pytest.raises(ValueError, match="it is empty"):
        read_pairs(write(tmp_path / "empty.gz", b""))


@pytest.mark.parametrize(
    "line, problem",
    [
        (b"only one", "has only 1 column"),
        (b"", "has only 1 column"),
        (b"\tb", "has an empty source side"),
        ("a\t \u3000".encode(), "has an empty target side"),
        (b"a\tb\rc\td", "contains a carriage return"),
        (b"a \rb\tc", "contains a carriage return"),
        (b"a\t\xff\xfe", "is not UTF-8"),
        (b"a\t\xed\xa0\x80", "is not UTF-8"),
    ],
)
def test_bad_lines(tmp_path, caplog, line, problem):
    path = write(tmp_path / "a", tsv(ROWS) + line + b"\n" + tsv(ROWS))
    with pytest.raises(ValueError, match=f"line 4 {problem}.* Received: path="):
        read_pairs(path)
    with caplog.at_level(logging.WARNING, "keras_attn"):
        assert read_pairs(path, on_bad="skip") == ROWS * 2
    assert len(caplog.records) == 1
    assert "Skipped 1 of 7: line 4 " + problem in caplog.text


def test_numbers_of_lines_that_end_with_carriage_returns(tmp_path):
    path = write(tmp_path / "a", b"a\tb\rc\td\r\re\tf\r")
    with pytest.raises(ValueError, match="line 3 has only 1 column"):
        read_pairs(path)
    assert read_pairs(path, on_bad="skip") == [("a", "b"), ("c", "d"), ("e", "f")]


def test_skips_are_counted(tmp_path, caplog):
    path = write(tmp_path / "a", b"bad\n" * 9 + b"a\tb\n")
    assert read_pairs(path, on_bad="skip") == [("a", "b")]
    assert "Skipped 9 of 10: line 1 has" in caplog.text
    assert "line 5 has" in caplog.text and "line 6" not in caplog.text
    with pytest.raises(ValueError, match="at least one sentence pair"):
        read_pairs(write(path, b"bad\nbad\n"), on_bad="skip")
    with pytest.raises(ValueError, match="Received: on_bad='ignore'"):
        read_pairs(path, on_bad="ignore")


def test_damaged_gzip(tmp_path):
    complete = gzip.compress(tsv(ROWS * 50))
    flipped = bytearray(complete)
    flipped[len(complete) // 2] ^= 255
    for data in (complete[:-5], complete[:20], bytes(flipped), b"plain\ttext\n"):
        with pytest.raises(ValueError, match="complete gzip file.*Received: path="):
            read_pairs(write(tmp_path / "a.tsv.gz", data))
