"""Models on the Hugging Face hub, through the library huggingface_hub.

`name` parses a model's name. `client` lists the files of a repository, from the server or, if it
cannot be reached, from the library's cache (`cache`). `choice` selects the files of the model,
`download` fetches them, and `model` combines these steps. Commits, file names and digests from the
server are checked before they are used. The library is imported at the first use of a hub name.
"""
