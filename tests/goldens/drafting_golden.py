"""Write tests/data/drafting.json: what PyTorch proposes with the MTP layers of small models.

    pip install torch transformers numpy numba
    python tests/goldens/drafting_golden.py FOLDER  # qwen3_5/hf and deepseek_v2/hf in it

The checkpoints there lack the layer, and transformers leaves it out of its models. So it is put
together of its parts here: the norms and the layer of attention are transformers' own; DeepSeek's
and GLM's is that of a model of one layer more. The tests need neither package.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2RMSNorm
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer, Qwen3_5RMSNorm

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.runtime.speculation.drafting_model import (  # noqa: E402
    LENGTHS,
    MODELS,
    PROMPT,
    TOKENS,
    base_of,
    write,
)


class Layer(torch.nn.Module):
    """The MTP layer: it maps pairs of a state and the next token's embedding to states."""

    def __init__(self, model: torch.nn.Module, weights: dict[str, torch.Tensor]) -> None:
        super().__init__()
        config = self.config = model.config
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.rotary = model.model.rotary_emb
        self.fc = torch.nn.Linear(2 * hidden, hidden, bias=False)
        self.pre_fc_norm_embedding = Qwen3_5RMSNorm(hidden, eps)
        self.pre_fc_norm_hidden = Qwen3_5RMSNorm(hidden, eps)
        self.norm = Qwen3_5RMSNorm(hidden, eps)
        full = config.layer_types.index("full_attention")
        self.layers = torch.nn.ModuleList([Qwen3_5DecoderLayer(config, full)])
        named = {k.removeprefix("mtp."): v for k, v in weights.items() if k.startswith("mtp.")}
        self.load_state_dict(named)

    def forward(self, states: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        both = self.pre_fc_norm_embedding(embeddings), self.pre_fc_norm_hidden(states)
        x = self.fc(torch.cat(both, -1))
        count = x.shape[1]
        positions = torch.arange(count)[None]
        turns = self.rotary(x, positions.expand(3, 1, -1))
        mask = torch.full((count, count), float("-inf")).triu(1)[None, None]
        x = self.layers[0](
            x, position_embeddings=turns, attention_mask=mask, position_ids=positions
        )
        return self.norm(x[0] if isinstance(x, tuple) else x)


class LastLayer(torch.nn.Module):
    """The MTP layer of DeepSeek and GLM, whose norms add nothing to their weights."""

    def __init__(self, folder: Path, weights: dict[str, torch.Tensor], count: int) -> None:
        super().__init__()
        longer = _model(folder, num_hidden_layers=count + 1).model
        self.layer, self.rotary = longer.layers[count], longer.rotary_emb
        prefix = f"model.layers.{count}."
        self.eh_proj = weights[f"{prefix}eh_proj.weight"]
        self.norms = []
        for name in ("enorm", "hnorm", "shared_head.norm"):
            norm = DeepseekV2RMSNorm(longer.config.hidden_size, longer.config.rms_norm_eps)
            norm.load_state_dict({"weight": weights[f"{prefix}{name}.weight"]})
            self.norms.append(norm)

    def forward(self, states: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        enorm, hnorm, norm = self.norms
        x = torch.cat([enorm(embeddings), hnorm(states)], -1) @ self.eh_proj.T
        count = x.shape[1]
        positions = torch.arange(count)[None]
        mask = torch.full((count, count), float("-inf")).triu(1)[None, None]
        turns = self.rotary(x, positions)
        return norm(
            self.layer(x, attention_mask=mask, position_ids=positions, position_embeddings=turns)
        )


def _model(folder: Path, **options: int) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **options
    ).eval()


@torch.no_grad()
def drafts(folder: Path) -> list[dict[str, list[float]]]:
    """Return the proposal after each part of the prompt, which ends with the model's own token."""
    model, weights = _model(folder), load_file(folder / "model.safetensors")
    if hasattr(model.config, "layer_types"):
        layer = Layer(model, weights).eval()
    else:
        layer = LastLayer(folder, weights, model.config.num_hidden_layers).eval()
    embed = model.model.embed_tokens
    found = []
    for length in LENGTHS:
        tokens = torch.tensor([PROMPT[:length]])
        states = model.model(tokens).last_hidden_state
        following = int(model.lm_head(states[0, -1]).argmax())
        embeddings = embed(torch.tensor([[*PROMPT[1:length], following]]))
        ids, chances = [], []
        for _ in range(TOKENS):
            made = layer(states, embeddings)[:, -1:]
            logits = model.lm_head(made[0, 0])
            ids.append(int(logits.argmax()))
            chances.append(float(logits.softmax(-1).max()))
            # The next pair: its own state, and the token that it proposed.
            states = torch.cat([states, made], 1)
            embeddings = torch.cat([embeddings, embed(torch.tensor([[ids[-1]]]))], 1)
        found.append({"following": following, "tokens": ids, "chances": chances})
    return found


def main() -> None:
    found = {}
    for name in MODELS:
        with tempfile.TemporaryDirectory() as temporary:
            base = base_of(name, Path(sys.argv[1]), Path(temporary))
            made = drafts(write(base, Path(temporary) / "model"))
        found[name] = dict(zip(map(str, LENGTHS), made, strict=True))
    path = ROOT / "tests" / "data" / "drafting.json"
    path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
