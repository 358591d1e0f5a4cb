"""Small vision models with drawn weights, as Hugging Face directories, and test images.

tests/goldens/image_goldens.py lets transformers compute what the tests expect of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.formats.raw_safetensors import write_safetensors
from tests.images import small_gemma4_models as gemma4
from tests.images import small_internvl_models as internvl
from tests.images import small_lfm2_models as lfm2
from tests.images import small_llava_models as llava
from tests.images import small_minicpm_models as minicpm
from tests.images import small_pixtral_models as pixtral
from tests.images import small_qwen_models as qwen

# The modules that describe models, by the models' names; two are described here.
MODULES = {
    name: module
    for module in (gemma4, qwen, pixtral, internvl, llava, lfm2, minicpm)
    for name in module.NAMES
}
SIZES = ((64, 64), (100, 60), (1, 1), (300, 7), (40, 90))  # width, height
# Sizes of images whose rows are compared at every STEP-th row.
FURTHER, STEP = ((17, 23), (3, 5000), (896, 896), (4000, 3000)), 7
# Sizes of images that are resized, and the sizes that they get.
RESIZED = (
    ((64, 64), (51, 51)), ((17, 23), (40, 54)), ((3, 500), (32, 480)), ((100, 60), (33, 77)),
    ((1, 1), (8, 8)), ((300, 7), (60, 12)), ((200, 150), (31, 150)), ((40, 90), (40, 11)),
    ((640, 640), (51, 51)),
)  # fmt: skip
SCANNING = {
    "do_pan_and_scan": True, "pan_and_scan_min_crop_size": 7, "pan_and_scan_max_num_crops": 3,
    "pan_and_scan_min_ratio_to_activate": 1.2,
}  # fmt: skip
TOKENS = 16  # that are generated
QUESTION = "What is it?"
_SMOLVLM_TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
    "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
_GEMMA_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{'<start_of_turn>' + message['role'] + '\n'}}"
    "{% if message['content'] is string %}{{ message['content'] | trim }}{% else %}"
    "{% for item in message['content'] %}{% if item['type'] == 'image' %}{{ '<start_of_image>' }}"
    "{% elif item['type'] == 'text' %}{{ item['text'] | trim }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
_VISION: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "image_size": 64, "patch_size": 8, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6,
}  # fmt: skip
SPECIAL = {
    "idefics3": (
        "<|im_start|>", "<end_of_utterance>", "<fake_token_around_image>", "<image>",
        "<global-img>", *(f"<row_{row}_col_{column}>" for row in "123456" for column in "123456"),
    ),
    "gemma3": (
        "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>",
        "<end_of_image>", "<image_soft_token>",
    ),
    **{name: module.SPECIAL for name, module in MODULES.items()},
}  # fmt: skip
_TEMPLATES = {
    "idefics3": _SMOLVLM_TEMPLATE, "gemma3": _GEMMA_TEMPLATE,
    **{name: module.TEMPLATE for name, module in MODULES.items()},
}  # fmt: skip
# The token of a row, in transformers' ids.
ROW_TOKENS = {
    "idefics3": "<image>", "gemma3": "<image_soft_token>",
    **dict.fromkeys(gemma4.NAMES, "<|image|>"),
    **dict.fromkeys(qwen.NAMES, "<|image_pad|>"),
    **dict.fromkeys(pixtral.NAMES, "[IMG]"),
    **dict.fromkeys(internvl.NAMES, "<IMG_CONTEXT>"),
    **dict.fromkeys(llava.NAMES, "<image>"),
    **dict.fromkeys(lfm2.NAMES, "<image>"),
    **dict.fromkeys(minicpm.NAMES, "<unk>"),
}  # fmt: skip


def _vocab_size(name: str) -> int:
    return 256 + len(SPECIAL[name])


def config(name: str) -> dict[str, Any]:
    """Return a model's config.json."""
    if name in MODULES:
        return MODULES[name].config(name)
    ids = {token: 256 + number for number, token in enumerate(SPECIAL[name])}
    text = {
        "hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": _vocab_size(name), "max_position_embeddings": 2048,
    }  # fmt: skip
    if name == "idefics3":
        text |= {"model_type": "llama", "num_hidden_layers": 2, "rms_norm_eps": 1e-5,
                 "rope_theta": 1e4, "tie_word_embeddings": False}  # fmt: skip
        return {
            "architectures": ["Idefics3ForConditionalGeneration"], "model_type": "idefics3",
            "scale_factor": 2, "image_token_id": ids["<image>"], "tie_word_embeddings": False,
            "text_config": text, "vision_config": {**_VISION, "model_type": "idefics3_vision"},
            "dtype": "float32",
        }  # fmt: skip
    text |= {"model_type": "gemma3_text", "num_hidden_layers": 4, "head_dim": 16,
             "sliding_window": 24, "query_pre_attn_scalar": 16, "tie_word_embeddings": True,
             "layer_types": ["sliding_attention", "full_attention"] * 2}  # fmt: skip
    return {
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
        "mm_tokens_per_image": 16, "image_token_index": ids["<image_soft_token>"],
        "boi_token_index": ids["<start_of_image>"], "eoi_token_index": ids["<end_of_image>"],
        "text_config": text, "tie_word_embeddings": True, "dtype": "float32",
        "vision_config": {**_VISION, "model_type": "siglip_vision_model",
                          "vision_use_head": False},
    }  # fmt: skip


def processor(name: str) -> dict[str, Any]:
    """Return a model's preprocessor_config.json."""
    if name in MODULES:
        return MODULES[name].processor(name)
    shared = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "do_resize": True}
    if name == "idefics3":
        return {
            **shared, "image_processor_type": "Idefics3ImageProcessor", "resample": 1,
            "size": {"longest_edge": 128}, "max_image_size": {"longest_edge": 64},
            "do_image_splitting": True,
        }  # fmt: skip
    return {
        **shared, "image_processor_type": "Gemma3ImageProcessor", "resample": 2,
        "size": {"height": 64, "width": 64},
    }  # fmt: skip


def _shapes(name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of all tensors."""
    if name in MODULES:
        yield from MODULES[name].shapes(name)
        return
    values = config(name)
    text, vision = values["text_config"], values["vision_config"]
    d, inner = vision["hidden_size"], vision["intermediate_size"]
    towers = {"idefics3": "model.vision_model.", "gemma3": "model.vision_tower.vision_model."}
    texts = {"idefics3": "model.text_model.", "gemma3": "model.language_model."}
    tower, size = towers[name], vision["patch_size"]
    yield f"{tower}embeddings.patch_embedding.weight", (d, 3, size, size)
    yield f"{tower}embeddings.patch_embedding.bias", (d,)
    yield f"{tower}embeddings.position_embedding.weight", ((vision["image_size"] // size) ** 2, d)
    for norm in ("weight", "bias"):
        yield f"{tower}post_layernorm.{norm}", (d,)
    for layer in range(vision["num_hidden_layers"]):
        prefix = f"{tower}encoder.layers.{layer}."
        for part in ("weight", "bias"):
            for norm in ("layer_norm1", "layer_norm2"):
                yield f"{prefix}{norm}.{part}", (d,)
            for module, (rows, columns) in {
                **{f"self_attn.{which}_proj": (d, d) for which in ("q", "k", "v", "out")},
                "mlp.fc1": (inner, d), "mlp.fc2": (d, inner),
            }.items():  # fmt: skip
                yield f"{prefix}{module}.{part}", (rows, columns)[: 2 if part == "weight" else 1]
    width = text["hidden_size"]
    if name == "idefics3":
        columns = d * values["scale_factor"] ** 2
        yield "model.connector.modality_projection.proj.weight", (width, columns)
    else:
        yield "model.multi_modal_projector.mm_input_projection_weight", (d, width)
        yield "model.multi_modal_projector.mm_soft_emb_norm.weight", (d,)
    heads, dim = text["num_attention_heads"], text.get("head_dim", 12)
    keys = text["num_key_value_heads"] * dim
    yield f"{texts[name]}embed_tokens.weight", (text["vocab_size"], width)
    yield f"{texts[name]}norm.weight", (width,)
    for layer in range(text["num_hidden_layers"]):
        prefix = f"{texts[name]}layers.{layer}."
        yield f"{prefix}input_layernorm.weight", (width,)
        yield f"{prefix}post_attention_layernorm.weight", (width,)
        if name == "gemma3":
            for norm in ("pre_feedforward_layernorm", "post_feedforward_layernorm"):
                yield f"{prefix}{norm}.weight", (width,)
            for norm in ("self_attn.q_norm", "self_attn.k_norm"):
                yield f"{prefix}{norm}.weight", (dim,)
        for module, shape in {
            "self_attn.q_proj": (heads * dim, width), "self_attn.k_proj": (keys, width),
            "self_attn.v_proj": (keys, width), "self_attn.o_proj": (width, heads * dim),
            "mlp.gate_proj": (text["intermediate_size"], width),
            "mlp.up_proj": (text["intermediate_size"], width),
            "mlp.down_proj": (width, text["intermediate_size"]),
        }.items():  # fmt: skip
            yield f"{prefix}{module}.weight", shape
    if not values["tie_word_embeddings"]:
        yield "lm_head.weight", (text["vocab_size"], width)


def tensors(name: str) -> dict[str, NDArray[np.float32]]:
    """Return drawn tensors."""
    # With 42, two tokens of "gemma4" are almost equally probable in an answer, and "gemma4_12b"
    # writes the mark of an image, which transformers replaces by the padding token.
    rng = np.random.default_rng(43 if name in ("gemma4", "gemma4_12b") else 42)
    drawn = {}
    for tensor, shape in _shapes(name):
        values = rng.standard_normal(shape, np.float32)
        is_norm = len(shape) == 1 and tensor.endswith("weight")
        drawn[tensor] = values * np.float32(0.1)
        without_1 = name in ("gemma3", "qwen35") and "vis" not in tensor
        if is_norm and not without_1:
            drawn[tensor] = drawn[tensor] + np.float32(1)
    return gemma4.adjusted(drawn) if name in gemma4.NAMES else drawn


def _tokenizer() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {character: number for number, character in enumerate(alphabet)}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def write_directory(name: str, folder: Path) -> Path:
    """Write a model's directory with its tokenizer, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = gemma4.tokenizer() if name in gemma4.NAMES else _tokenizer()
    special = SPECIAL[name]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {"bos_token": special[0], "eos_token": special[1], "pad_token": special[1]}
    if name in pixtral.NAMES:
        named = {"bos_token": special[1], "eos_token": special[2], "unk_token": special[0]}
    if name in lfm2.NAMES:
        named = {"bos_token": special[0], "eos_token": special[2], "pad_token": special[2]}
    if name == "gemma3":
        named |= {"image_token": special[6], "boi_token": special[4], "eoi_token": special[5]}
    if name in gemma4.NAMES:
        named |= {
            "image_token": special[4], "boi_token": special[5], "eoi_token": special[6],
            "audio_token": special[8], "boa_token": special[9], "eoa_token": special[10],
        }  # fmt: skip
    if name in internvl.NAMES:
        named |= {
            "start_image_token": special[2], "end_image_token": special[3],
            "context_image_token": special[4], "video_token": special[5],
        }  # fmt: skip
    named |= {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": _TEMPLATES[name]}
    for file, values in {
        "config.json": config(name),
        "preprocessor_config.json": processor(name),
        "tokenizer_config.json": named,
    }.items():
        (folder / file).write_text(json.dumps(values), "utf-8")
    write_safetensors(folder / "model.safetensors", tensors(name))
    return folder


def write_chat_directory(name: str, folder: Path, **changed: object) -> Path:
    """Write a model of InternVL as OpenGVLab's InternVLChatModel, and return its directory.

    ``changed``: other values of config.json.
    """
    write_directory(name, folder)
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    for file, values in {
        "config.json": internvl.chat_config(name) | changed,
        "preprocessor_config.json": internvl.chat_processor(name),
        "tokenizer_config.json": tokenizer | {"chat_template": internvl.CHAT_TEMPLATE},
    }.items():
        (folder / file).write_text(json.dumps(values), "utf-8")
    write_safetensors(folder / "model.safetensors", internvl.chat_tensors(tensors(name)))
    return folder


def write_scanning(folder: Path) -> Path:
    """Write the model of Gemma 3 with pan and scan, and return its directory."""
    write_directory("gemma3", folder)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps({**processor("gemma3"), **SCANNING}), "utf-8")
    return folder


def image(width: int, height: int) -> Image.Image:
    """Return an image with drawn pixels."""
    rng = np.random.default_rng(width * 1000 + height)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


def blocks(width: int, height: int) -> Image.Image:
    """Return an image of drawn colours in blocks, which remain if it is shrunk."""
    colors = np.random.default_rng(width).integers(0, 256, (11, 13, 3), dtype=np.uint8)
    rows, columns = np.arange(height) * 11 // height, np.arange(width) * 13 // width
    return Image.fromarray(colors[rows[:, None], columns])
