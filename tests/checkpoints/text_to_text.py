"""What a text-to-text model of `transformers` and ours are both asked."""

import numpy as np
from published import ids_and_mask, published, theirs, torch, transformers
from tensors import array

from keras_attn import decoding

# One token, and more than are told apart by T5's distances here.
SOURCE_LENGTHS, TARGET_LENGTHS = (7, 1, 40), (5, 41, 1)


def made(folder, architecture, config, seed=0):
    """`published`, but with such weights that it generates more than one token."""
    model = published(folder, architecture, config, seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1 and (".fc" in name or "Dense" in name):
                parameter *= 2
        for module in model.modules():
            if hasattr(module, "create_weight"):  # sines and cosines, which are fixed
                module.weight.copy_(module.create_weight())
        if hasattr(model, "final_logits_bias"):
            logits = theirs(model, **examples(config)[1])
            model.final_logits_bias -= torch.tensor(logits.mean(axis=(0, 1)))
            model.final_logits_bias[0, config.eos_token_id] += 1.5
    model.save_pretrained(folder)
    return model


def source_of(config):
    """Ids, padded, and where they are real."""
    return ids_and_mask(SOURCE_LENGTHS, config.vocab_size, config.pad_token_id)


def examples(config):
    """Inputs for ours and the same for theirs, padded on both sides."""
    source, keep = source_of(config)
    target, _ = ids_and_mask(
        TARGET_LENGTHS, config.vocab_size, config.pad_token_id, seed=1
    )
    target[:, 0] = config.decoder_start_token_id
    inputs = {"input_ids": source, "attention_mask": keep, "decoder_input_ids": target}
    return {"source": source, "target": target}, inputs


def outputs_of_theirs(model):
    """For `examples`: its logits, or without a head the decoder's last hidden state."""
    output = "logits" if hasattr(model, "lm_head") else "last_hidden_state"
    return theirs(model, output, **examples(model.config)[1])


def generated_by_theirs(model, max_length, min_length, num_beams=1):
    """A list of the tokens of each row, up to the end token and with it."""
    source, keep = source_of(model.config)
    end = model.config.eos_token_id
    found = model.generate(
        torch.tensor(source, dtype=torch.long),
        attention_mask=torch.tensor(keep),
        generation_config=transformers.GenerationConfig(
            do_sample=False,
            num_beams=num_beams,
            max_new_tokens=max_length,
            min_new_tokens=min_length - 1,  # the end token is none of them
            suppress_tokens=[model.config.pad_token_id],
            decoder_start_token_id=model.config.decoder_start_token_id,
            pad_token_id=model.config.pad_token_id,
            eos_token_id=end,
            # Where the two rules agree: scores are plain sums, which only fall, so that
            # the best that has ended is the best once none that runs is above it.
            length_penalty=0.0,
            early_stopping=False,
        ),
    )
    rows = found[:, 1:].tolist()
    return [row[: row.index(end) + 1] if end in row else row for row in rows]


def generated_by_ours(model, max_length, min_length, num_beams=1):
    """The same of ours."""
    config = transformers.PretrainedConfig(**model.published["config"])
    found = decoding.generate(
        model,
        {"source": source_of(config)[0]},
        start_token_id=config.decoder_start_token_id,
        end_token_id=config.eos_token_id,
        max_new_tokens=max_length,
        min_new_tokens=min_length,
        banned_token_ids=[config.pad_token_id],
        strategy=decoding.BeamSearch(num_beams, length_penalty=0.0)
        if num_beams > 1
        else decoding.GreedySearch(),
    )
    token_ids, lengths = array(found["token_ids"]), array(found["lengths"])
    return [row[0, :n].tolist() for row, n in zip(token_ids, lengths[:, 0])]


def assert_generate_the_same(model, ours):
    """Greedily over 50 steps, and by beams, some of which end of themselves."""
    found = generated_by_ours(ours, 50, min_length=50)
    assert found == generated_by_theirs(model, 50, min_length=50)
    assert len(np.unique(found)) > 4
    found = generated_by_ours(ours, 50, min_length=3, num_beams=4)
    assert found == generated_by_theirs(model, 50, min_length=3, num_beams=4)
    assert min(map(len, found)) < 50
