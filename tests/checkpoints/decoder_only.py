"""What the tests of models without an encoder have in common."""

import json

import numpy as np
from published import (
    difference,
    ids_and_mask,
    published,
    saved_back,
    saved_by_keras,
    torch,
    transformers,
)
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from tensors import array, assert_equal

from keras_attn import checkpoints
from keras_attn.decoding import generate

VOCABULARY, LONGEST, WINDOW, TOKENS = 29, 41, 5, 50
IDS, KEEP = ids_and_mask([7, 1, LONGEST], VOCABULARY)


def made(folder, kind, end, options):
    """A model of theirs, random and saved in `folder`."""
    config = getattr(transformers, f"{kind}Config")(
        bos_token_id=None, eos_token_id=None, **options
    )
    return published(folder, kind + end, config)


def outputs_of(model):
    """Logits, or what the last norm gives, for `IDS`. They count where `KEEP`."""
    ids, keep = torch.tensor(IDS, dtype=torch.long), torch.tensor(KEEP)
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=keep)[0].float().numpy()


def check_equal(model, folder):
    """Loaded, saved as it came, and saved and loaded by Keras: always equal."""
    expected = outputs_of(model)
    ours = checkpoints.load(folder)
    found = ours(IDS)
    assert difference(found, expected, KEEP) < 1e-4
    back, told = saved_back(ours, folder / "back", type(model).__name__)
    assert not told["missing_keys"]
    assert difference(outputs_of(back), expected, KEEP) < 1e-6
    reloaded = saved_by_keras(ours, folder)
    assert_equal(reloaded(IDS), found)
    checkpoints.save(reloaded, folder / "again")
    assert tensors(folder / "again") == tensors(folder / "back") == tensors(folder)


def check_same_greedy_tokens(model, folder):
    """Theirs and ours go on alike, past every window, each from its cache."""
    prompt = IDS[[0, 2], :7]
    found = generate(
        checkpoints.load(folder), {"target": prompt}, max_new_tokens=TOKENS
    )
    expected = model.generate(
        torch.tensor(prompt, dtype=torch.long),
        attention_mask=torch.ones(prompt.shape, dtype=torch.long),
        do_sample=False,
        max_new_tokens=TOKENS,
        pad_token_id=0,
    )
    expected = expected[:, prompt.shape[1] :].numpy()
    assert len(np.unique(expected)) > 3  # or it shows little
    assert_equal(array(found["token_ids"])[:, 0], expected)


def check_shards(model, folder):
    """Weights in several files, theirs or ours, are those of one."""
    model.save_pretrained(folder / "theirs", max_shard_size="4KB")
    ours = checkpoints.load(folder / "theirs")
    checkpoints.save(ours, folder / "ours", max_shard_size=4000)
    for shards in folder / "theirs", folder / "ours":
        assert len(list(shards.glob("*.safetensors"))) > 2
        assert tensors(shards) == tensors(folder)
    assert_equal(ours(IDS), checkpoints.load(folder)(IDS))


def check_bfloat16(model, folder):
    """Weights stay what they are, to the bit; outputs are about as exact as theirs."""
    model.to(torch.bfloat16).save_pretrained(folder / "theirs")
    ours = checkpoints.load(folder / "theirs", dtype="bfloat16")
    assert {weight.dtype for weight in ours.weights} == {"bfloat16"}
    found, rounded = array(ours(IDS)).astype("float32"), outputs_of(model)
    exact = outputs_of(model.float())
    error = difference(rounded, exact, KEEP)
    assert difference(found, exact, KEEP) < 2 * error
    checkpoints.save(ours, folder / "ours")
    assert tensors(folder / "ours") == tensors(folder / "theirs")
    assert json.loads((folder / "ours/config.json").read_text())["dtype"] == "bfloat16"


def tensors(folder):
    """Dict from the name of each tensor in a folder to its dtype, shape and bytes."""
    found = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="np") as opened:
            for name in opened.offset_keys():
                x = opened.get_tensor(name)
                found[name] = str(x.dtype), x.shape, x.tobytes()
    return found


def add_tensors(folder, **more):
    """Puts into the file of the weights what older ones hold beside them."""
    file = folder / "model.safetensors"
    save_file({**load_file(file), **more}, file, metadata={"format": "pt"})


def change_config(folder, changes, without=()):
    """Writes `config.json` as another version of theirs has it."""
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    config = {key: value for key, value in config.items() if key not in without}
    path.write_text(json.dumps(config))


def drops(folder, **options):
    """Whether training differs from inference."""
    ours = checkpoints.load(folder, **options)
    return bool((array(ours(IDS, training=True)) != array(ours(IDS))).any())
