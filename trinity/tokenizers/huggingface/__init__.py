"""Vocabularies in the files of Hugging Face's format, read into GGUF's keys, the canonical ones.

``metadata.tokenizer_metadata`` reads all of them; ``tokenizer_from_metadata`` takes its result.
Nothing is imported here: ``file_library`` runs in a process of its own, with little memory.
"""
