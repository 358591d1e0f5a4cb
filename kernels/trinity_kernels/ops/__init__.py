"""The operations of a layer, each a kernel that reads its operands from a plan record.

Docstrings name the slots of a record in capitals. A slot holds an address, a number of bytes from
row to row (STRIDE), or a number; M is the number of rows of a step (tokens).

    matmul/                          products with weights
    norm.py, activation.py, xielu.py, gaussian_top.py, scale.py, softcap.py, add.py,
    gated_add.py, head_gate.py, copy.py, clamp.py, hadamard.py, altup.py
                                     element by element, and norms
    rope.py, kv_layout.py            rotation of queries and keys, and pages of the KV cache
    attention.py, attention_block.py, attention_parts.py, attention_tile.py, kv_codes.py
                                     attention over pages
    prompt_attention.py, prompt_tiles.py
                                     attention of prompts, in bfloat16 on AMX tiles
    byte_attention.py, byte_blocks.py, byte_softmax.py
                                     attention of encoders, in int8
    split_attention.py               attention of encoders on tiles, in two bfloat16
    route.py, expert_rows.py, mix.py mixtures of experts
    causal_conv.py, delta_rule.py, channel_delta_rule.py, selective_scan.py, channel_scan.py,
    rwkv.py, rwkv6.py, state.py
                                     layers with a recurrent state
    squares.py                       importance matrices
    select.py                        the largest logits
    exponential.py, shares.py        exp; how threads share rows
"""
