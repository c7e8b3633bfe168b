"""Checks that all decoder-only models have in common."""

import json
import pathlib
from collections.abc import Collection
from typing import Any

import numpy as np
from published import (
    ids_and_mask,
    keras_round_trip,
    load_in_transformers,
    max_difference,
    save_reference,
    torch,
    transformers,
)
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from tensors import array, assert_equal

from keras_attn import checkpoints
from keras_attn.decoding import generate

VOCABULARY_SIZE, MAX_LENGTH, WINDOW, NUM_NEW_TOKENS = 29, 41, 5, 50
IDS, MASK = ids_and_mask([7, 1, MAX_LENGTH], VOCABULARY_SIZE)


def make_reference(
    folder: pathlib.Path, kind: str, suffix: str, options: dict[str, Any]
) -> Any:
    """Return a saved random `transformers` model of the class `kind + suffix`."""
    config = getattr(transformers, f"{kind}Config")(
        bos_token_id=None, eos_token_id=None, **options
    )
    return save_reference(folder, kind + suffix, config)


def reference_outputs(reference: Any) -> np.ndarray:
    """Return the logits or last hidden states for `IDS`, valid where `MASK` is True."""
    ids, mask = torch.tensor(IDS, dtype=torch.long), torch.tensor(MASK)
    with torch.no_grad():
        return reference(input_ids=ids, attention_mask=mask)[0].float().numpy()


def check_outputs(reference: Any, folder: pathlib.Path) -> None:
    """Check the outputs after loading, saving, and saving and loading by Keras."""
    expected = reference_outputs(reference)
    model = checkpoints.load(folder)
    outputs = model(IDS)
    assert max_difference(outputs, expected, MASK) < 1e-4
    reloaded, loading_info = load_in_transformers(
        model, folder / "saved", type(reference).__name__
    )
    assert not loading_info["missing_keys"]
    assert max_difference(reference_outputs(reloaded), expected, MASK) < 1e-6
    round_trip = keras_round_trip(model, folder)
    assert_equal(round_trip(IDS), outputs)
    checkpoints.save(round_trip, folder / "round_trip")
    stored = stored_tensors(folder)
    assert stored_tensors(folder / "round_trip") == stored
    assert stored_tensors(folder / "saved") == stored


def check_greedy_tokens(reference: Any, folder: pathlib.Path) -> None:
    """Check cached greedy decoding beyond the length of every sliding window."""
    prompt = IDS[[0, 2], :7]
    generated = generate(
        checkpoints.load(folder), {"token_ids": prompt}, max_new_tokens=NUM_NEW_TOKENS
    )
    expected = reference.generate(
        torch.tensor(prompt, dtype=torch.long),
        attention_mask=torch.ones(prompt.shape, dtype=torch.long),
        do_sample=False,
        max_new_tokens=NUM_NEW_TOKENS,
        pad_token_id=0,
    )
    expected = expected[:, prompt.shape[1] :].numpy()
    assert len(np.unique(expected)) > 3  # otherwise the comparison proves little
    assert_equal(array(generated["token_ids"])[:, 0], expected)


def check_shards(reference: Any, folder: pathlib.Path) -> None:
    """Check that several weight files contain the same tensors as a single file."""
    reference.save_pretrained(folder / "reference", max_shard_size="4KB")
    model = checkpoints.load(folder / "reference")
    checkpoints.save(model, folder / "saved", max_shard_size=4000)
    for shards in folder / "reference", folder / "saved":
        assert len(list(shards.glob("*.safetensors"))) > 2
        assert stored_tensors(shards) == stored_tensors(folder)
    assert_equal(model(IDS), checkpoints.load(folder)(IDS))


def check_bfloat16(reference: Any, folder: pathlib.Path) -> None:
    """Check that bfloat16 weights are preserved exactly and the error is similar."""
    reference.to(torch.bfloat16).save_pretrained(folder / "reference")
    model = checkpoints.load(folder / "reference", dtype="bfloat16")
    assert {weight.dtype for weight in model.weights} == {"bfloat16"}
    outputs = array(model(IDS)).astype("float32")
    rounded = reference_outputs(reference)
    exact = reference_outputs(reference.float())
    reference_error = max_difference(rounded, exact, MASK)
    assert max_difference(outputs, exact, MASK) < 2 * reference_error
    saved = folder / "saved"
    checkpoints.save(model, saved)
    assert stored_tensors(saved) == stored_tensors(folder / "reference")
    assert json.loads((saved / "config.json").read_text())["dtype"] == "bfloat16"


def stored_tensors(
    folder: pathlib.Path,
) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Return the dtype, shape and bytes of each tensor in a folder."""
    tensors = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="np") as opened:
            for name in opened.offset_keys():
                x = opened.get_tensor(name)
                tensors[name] = str(x.dtype), x.shape, x.tobytes()
    return tensors


def add_tensors(folder: pathlib.Path, **tensors: np.ndarray) -> None:
    """Add tensors, such as the buffers in older files, to the weight file."""
    file = folder / "model.safetensors"
    save_file({**load_file(file), **tensors}, file, metadata={"format": "pt"})


def change_config(
    folder: pathlib.Path, changes: dict[str, Any], removed: Collection[str] = ()
) -> None:
    """Replace and remove entries of `config.json`."""
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    config = {key: value for key, value in config.items() if key not in removed}
    path.write_text(json.dumps(config))


def has_dropout(folder: pathlib.Path, **options: Any) -> bool:
    """Return whether the outputs in training differ from those in inference."""
    model = checkpoints.load(folder, **options)
    return bool((array(model(IDS, training=True)) != array(model(IDS))).any())
