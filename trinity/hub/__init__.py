"""Models on the Hugging Face hub, through the library huggingface_hub.

`name` reads a model's name, `client` asks the server or, where it cannot be reached, the library's
cache (`cache`) for the files of a repository, `choice` says which of them are the model, `download`
brings them, `model` puts that together. What the server says is checked before it is used: commits,
names and digests of files. The library is imported when a name is used, never before.
"""
