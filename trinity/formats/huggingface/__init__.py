"""Models of Hugging Face's format: what their files mean, in the canonical names of GGUF.

``model.read_model`` gives a class's family and its checked configuration, ``tensors.hf_tensors``
the model's tensors in a checkpoint, ``metadata.model_metadata`` its keys. Nothing is imported here.
"""
