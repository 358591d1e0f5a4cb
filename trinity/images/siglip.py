"""Names of SigLIP's tensors, in GGUF and in transformers' class."""

# Beginnings of the names in classes whose tower is ``vision_tower``, of older releases too.
SIGLIP_PREFIXES = tuple(
    f"{model}{tower}"
    for model in ("model.", "")
    for tower in ("vision_tower.vision_model.", "vision_tower.", "")
)
SIGLIP_ENDS = {
    "v.patch_embd": "embeddings.patch_embedding",
    "v.position_embd": "embeddings.position_embedding",
    "v.post_ln": "post_layernorm",
}
SIGLIP_LAYERS = "encoder.layers.{}."
SIGLIP_LAYER = {
    "ln1": "layer_norm1",
    "ln2": "layer_norm2",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_out": "self_attn.out_proj",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
}
