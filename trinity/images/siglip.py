"""SigLIP, the tower of several families: its tensors in GGUF and in transformers, its defaults."""

# The means and standard deviations of channels with which towers were trained.
CLIP_CHANNELS = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
CHANNELS = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
# transformers' SiglipVisionConfig.
DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 16,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
}

# Beginnings of the names in classes whose tower is ``vision_tower``, of older releases too.
PREFIXES = tuple(
    f"{model}{tower}"
    for model in ("model.", "")
    for tower in ("vision_tower.vision_model.", "vision_tower.", "")
)
ENDS = {
    "v.patch_embd": "embeddings.patch_embedding",
    "v.position_embd": "embeddings.position_embedding",
    "v.post_ln": "post_layernorm",
}
LAYERS = "encoder.layers.{}."
LAYER = {
    "ln1": "layer_norm1",
    "ln2": "layer_norm2",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_out": "self_attn.out_proj",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
}
