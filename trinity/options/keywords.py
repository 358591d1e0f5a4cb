"""The error for a keyword argument that does not exist; it names the one that was meant."""

from __future__ import annotations

from collections.abc import Iterable

# Names in llama-cpp-python, transformers, Ollama, vLLM and OpenAI's library.
_OTHERS: dict[str, str] = {
    "cache_type_k": "kv_type",
    "ctx_size": "context_length",
    "do_sample": "temperature (0.0 is greedy)",
    "lora_path": "lora",
    "lora_request": "lora",
    "max_completion_tokens": "max_tokens",
    "max_length": "max_tokens",
    "max_model_len": "context_length",
    "max_new_tokens": "max_tokens",
    "max_num_seqs": "max_sequences",
    "min_new_tokens": "min_tokens",
    "n_batch": "batch_size",
    "n_ctx": "context_length",
    "n_parallel": "max_sequences",
    "n_predict": "max_tokens",
    "n_probs": "logprobs",
    "n_threads": "threads",
    "n_threads_batch": "threads",
    "num_ctx": "context_length",
    "num_keep": "keep",
    "num_predict": "max_tokens",
    "num_return_sequences": "n",
    "num_thread": "threads",
    "num_threads": "threads",
    "repeat_last_n": "penalty_last_n",
    "repeat_penalty": "repetition_penalty",
    "response_format": "grammar",
    "stop_sequences": "stop",
    "stop_strings": "stop",
    "stop_token_ids": "stop_tokens",
    "stream": "the method stream() or chat_stream()",
    "temp": "temperature",
    "top_logprobs": "logprobs",
    "type_k": "kv_type",
}
_GPU = ("n_gpu_layers", "num_gpu", "device", "device_map", "gpu_memory_utilization", "main_gpu")


def unknown_keyword(unknown: Iterable[str], known: Iterable[str]) -> TypeError:
    """The error for the first of the ``unknown`` names, with similar ``known`` ones."""
    from difflib import get_close_matches

    name = min(unknown)
    close = [_OTHERS[name]] if name in _OTHERS else get_close_matches(name, list(known), 3, 0.7)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    if name in _GPU:
        hint = "; trinity only runs on the CPU: omit it"
    return TypeError(f"got an unexpected keyword argument {name!r}{hint}")
