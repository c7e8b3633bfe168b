"""Train a PyTorch model: `nn.Transformer`, or Marian or GPT-2 of `transformers`.

Called by `benchmarks/learning.py`.
"""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import math

import numpy as np
import torch
from torch import nn

from learning_peers import loop


class Translator(nn.Module):
    """`nn.Transformer` with Xavier initial values and a linear layer for the logits."""

    def __init__(self, settings, sizes):
        super().__init__()
        width = settings["width"]
        self.source, self.target = (
            nn.Embedding(size, width) for size in sizes["vocabularies"]
        )
        self.transformer = nn.Transformer(
            width,
            settings["heads"],
            settings["layers"],
            settings["layers"],
            settings["inner"],
            dropout=0.0,
            batch_first=True,
            norm_first=True,
        )
        self.output = nn.Linear(width, sizes["vocabularies"][1])
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        position = torch.arange(512)[:, None]
        angle = position * torch.exp(
            torch.arange(0, width, 2) * (-math.log(10000.0) / width)
        )
        sinusoids = torch.stack([angle.sin(), angle.cos()], -1).reshape(512, width)
        self.register_buffer("sinusoids", sinusoids)

    def forward(self, source, target):
        def embed(embedding, ids):
            scaled = embedding(ids) * math.sqrt(embedding.embedding_dim)
            return scaled + self.sinusoids[: ids.shape[1]]

        causal = torch.ones(2 * (target.shape[1],), dtype=torch.bool).triu(1)
        x = self.transformer(
            embed(self.source, source),
            embed(self.target, target),
            tgt_mask=causal,
            src_key_padding_mask=source == 0,
            tgt_key_padding_mask=target == 0,
            memory_key_padding_mask=source == 0,
        )
        return self.output(x)


class Marian(nn.Module):
    """Marian from scratch, with the configuration's own defaults but for the sizes."""

    def __init__(self, settings, sizes):
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        source_size, target_size = sizes["vocabularies"]
        side = {
            "layers": settings["layers"],
            "attention_heads": settings["heads"],
            "ffn_dim": settings["inner"],
        }
        self.model = MarianMTModel(
            MarianConfig(
                vocab_size=source_size,
                decoder_vocab_size=target_size,
                share_encoder_decoder_embeddings=False,
                d_model=settings["width"],
                **{f"encoder_{name}": value for name, value in side.items()},
                **{f"decoder_{name}": value for name, value in side.items()},
                dropout=0.0,
                attention_dropout=0.0,
                activation_dropout=0.0,
                scale_embedding=True,
                pad_token_id=0,
                eos_token_id=sizes["end"],
                decoder_start_token_id=sizes["start"],
                forced_eos_token_id=None,
            )
        )

    def forward(self, source, target):
        return self.model(
            input_ids=source,
            attention_mask=source != 0,
            decoder_input_ids=target,
            decoder_attention_mask=target != 0,
            use_cache=False,
        ).logits


class Gpt2(nn.Module):
    """GPT-2 from scratch."""

    def __init__(self, settings, sizes):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        self.model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=sizes["vocabularies"][0],
                n_positions=sizes["length"],
                n_embd=settings["width"],
                n_layer=settings["layers"],
                n_head=settings["heads"],
                n_inner=settings["inner"],
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                bos_token_id=1,
                eos_token_id=1,
            )
        )

    def forward(self, token_ids):
        return self.model(input_ids=token_ids, use_cache=False).logits


MODELS = {"torch": Translator, "marian": Marian, "gpt2": Gpt2}


def main():
    task = loop.Task(sys.argv[1])
    settings = task.settings
    torch.manual_seed(settings["seed"])
    model = MODELS[settings["model"]](settings, task.sizes)
    optimizer = torch.optim.Adam(
        model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True
    )

    def tensors(inputs):
        return {name: torch.from_numpy(value).long() for name, value in inputs.items()}

    def train_step(inputs, labels, rate):
        model.train()
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(
            model(**tensors(inputs)).flatten(0, 1),
            torch.from_numpy(labels).long().flatten(),
            ignore_index=0,
            label_smoothing=settings["smoothing"],
        )
        loss.backward()
        optimizer.step()
        return loss.item()

    def logits(inputs):
        model.eval()
        with torch.inference_mode():
            return np.asarray(model(**tensors(inputs)).float())

    parameters = sum(parameter.numel() for parameter in model.parameters())
    loop.train(task, parameters, train_step, logits)


if __name__ == "__main__":
    main()
