"""Inputs and generation for text-to-text models, in `transformers` and keras_attn."""

import pathlib
from typing import Any

import keras
import numpy as np
from published import (
    ids_and_mask,
    run_reference,
    save_reference,
    torch,
    transformers,
)
from tensors import array

from keras_attn import decoding
from keras_attn.checkpoints.published_model import PublishedModel

# A single token, and lengths beyond the largest distance of T5's position bias.
SOURCE_LENGTHS, TARGET_LENGTHS = (7, 1, 40), (5, 41, 1)


def make_reference(
    folder: pathlib.Path, architecture: str, config: Any, seed: int = 0
) -> Any:
    """Return a reference model whose weights lead to varied generated tokens."""
    reference = save_reference(folder, architecture, config, seed)
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            if parameter.ndim > 1 and (".fc" in name or "Dense" in name):
                parameter *= 2
        for module in reference.modules():
            if hasattr(module, "create_weight"):  # sinusoidal positions are fixed
                module.weight.copy_(module.create_weight())
        if hasattr(reference, "final_logits_bias"):
            logits = run_reference(reference, "logits", **example_inputs(config)[1])
            reference.final_logits_bias -= torch.tensor(logits.mean(axis=(0, 1)))
            reference.final_logits_bias[0, config.eos_token_id] += 1.5
    reference.save_pretrained(folder)
    return reference


def source_and_mask(config: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return padded source ids and their padding mask."""
    return ids_and_mask(SOURCE_LENGTHS, config.vocab_size, config.pad_token_id)


def example_inputs(
    config: Any,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the same inputs for keras_attn and `transformers`, with padding."""
    source, mask = source_and_mask(config)
    target, _ = ids_and_mask(
        TARGET_LENGTHS, config.vocab_size, config.pad_token_id, seed=1
    )
    target[:, 0] = config.decoder_start_token_id
    reference_inputs = {
        "input_ids": source,
        "attention_mask": mask,
        "decoder_input_ids": target,
    }
    return {"source": source, "target": target}, reference_inputs


def reference_outputs(reference: Any) -> np.ndarray:
    """Return the logits or the decoder's last hidden states for `example_inputs`."""
    output = "logits" if hasattr(reference, "lm_head") else "last_hidden_state"
    return run_reference(reference, output, **example_inputs(reference.config)[1])


def reference_tokens(
    reference: Any, max_length: int, min_length: int, num_beams: int = 1
) -> list[list[int]]:
    """Return the tokens that `transformers` generates, up to and with the end token."""
    source, mask = source_and_mask(reference.config)
    end_token_id = reference.config.eos_token_id
    generated = reference.generate(
        torch.tensor(source, dtype=torch.long),
        attention_mask=torch.tensor(mask),
        generation_config=transformers.GenerationConfig(
            do_sample=False,
            num_beams=num_beams,
            max_new_tokens=max_length,
            min_new_tokens=min_length - 1,  # the end token is not counted
            suppress_tokens=[reference.config.pad_token_id],
            decoder_start_token_id=reference.config.decoder_start_token_id,
            pad_token_id=reference.config.pad_token_id,
            eos_token_id=end_token_id,
            # With these options the stopping rules of both libraries agree: a score is
            # a sum of log-probabilities, which only decreases, so the best finished
            # hypothesis is final once no unfinished one has a higher score.
            length_penalty=0.0,
            early_stopping=False,
        ),
    )
    sequences = generated[:, 1:].tolist()
    return [
        tokens[: tokens.index(end_token_id) + 1] if end_token_id in tokens else tokens
        for tokens in sequences
    ]


def generated_tokens(
    model: keras.Model, max_length: int, min_length: int, num_beams: int = 1
) -> list[list[int]]:
    """Return the tokens that keras_attn generates, up to and with the end token."""
    assert isinstance(model, PublishedModel) and model.published
    config = transformers.PretrainedConfig(**model.published["config"])
    generated = decoding.generate(
        model,
        {"source": source_and_mask(config)[0]},
        start_token_id=config.decoder_start_token_id,
        end_token_id=config.eos_token_id,
        max_new_tokens=max_length,
        min_new_tokens=min_length - 1,
        banned_token_ids=[config.pad_token_id],
        strategy=decoding.BeamSearch(num_beams, length_penalty=0.0)
        if num_beams > 1
        else decoding.GreedySearch(),
    )
    token_ids, lengths = array(generated["token_ids"]), array(generated["lengths"])
    return [ids[0, :n].tolist() for ids, n in zip(token_ids, lengths[:, 0])]


def assert_same_generated_tokens(reference: Any, model: keras.Model) -> None:
    """Compare 50 greedy steps, and a beam search in which some hypotheses end early."""
    tokens = generated_tokens(model, 50, min_length=50)
    assert tokens == reference_tokens(reference, 50, min_length=50)
    assert len(np.unique(tokens)) > 4
    tokens = generated_tokens(model, 50, min_length=3, num_beams=4)
    assert tokens == reference_tokens(reference, 50, min_length=3, num_beams=4)
    assert min(map(len, tokens)) < 50
