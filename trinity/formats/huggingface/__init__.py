"""The format of Hugging Face's checkpoints: config.json, names of tensors, and stored forms.

``models.read_model`` gives a class's family and what its config.json says,
``metadata.model_metadata`` the GGUF keys, ``providers.huggingface_tensors`` the model's tensors.
Nothing is imported here.
"""
