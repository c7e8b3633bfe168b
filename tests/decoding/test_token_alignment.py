"""What generated tokens were made from, against the maps of the whole model."""

import numpy as np
import pytest
from keras import ops
from test_constraints import PROMPTS

from keras_attn.decoding import BeamSearch, generate
from keras_attn.inspection import attention_maps

END, LENGTH = 3, 5
SOURCE = np.array([[3, 4, 5, 6], [6, 7, 0, 0], [8, 9, 4, 0], [5, 0, 0, 0]], "int32")


@pytest.mark.slow
@pytest.mark.on_pytorch
@pytest.mark.parametrize("has_prompt", [False, True])
def test_rows_of_the_last_cross_attention(translator, has_prompt):
    inputs = {"source": SOURCE}
    if has_prompt:
        inputs["target"] = PROMPTS
    found = generate(
        translator,
        inputs,
        start_token_id=2,
        end_token_id=END,
        max_new_tokens=LENGTH,
        strategy=BeamSearch(3, num_return_sequences=2),
        return_alignment=True,
    )
    found = {name: ops.convert_to_numpy(value) for name, value in found.items()}
    assert found["alignment"].shape == (4, 2, LENGTH, 4)
    for row in range(4):
        prompt = PROMPTS[row][PROMPTS[row] > 0] if has_prompt else np.array([2])
        for which in range(2):
            length = found["lengths"][row, which]
            tokens = found["token_ids"][row, which, :length]
            target = np.concatenate([prompt, tokens[:-1]])[None].astype("int32")
            maps = attention_maps(
                translator, {"source": SOURCE[row : row + 1], "target": target}
            )
            crossing = [name for name in maps if name.endswith("/cross_attention")]
            expected = maps[max(crossing)][0].mean(axis=0)[len(prompt) - 1 :]
            alignment = found["alignment"][row, which]
            np.testing.assert_allclose(alignment[:length], expected, atol=1e-5)
            assert not alignment[length:].any()
            assert not alignment[:, SOURCE[row] == 0].any()


def test_a_model_without_cross_attention_is_refused(language_model):
    prompt = {"target": PROMPTS[:, :1]}
    with pytest.raises(ValueError, match="requires a cross-attention layer"):
        generate(language_model, prompt, max_new_tokens=4, return_alignment=True)
