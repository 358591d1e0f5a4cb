"""Read vocabularies from files in Hugging Face's format into GGUF's keys.

``metadata.tokenizer_metadata`` reads all of them; ``tokenizer_from_metadata`` takes its result.
Nothing is imported here: ``file_library`` runs in a process of its own, with little memory.
"""
