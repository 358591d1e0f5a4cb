"""The HTTP server: OpenAI's, Anthropic's, Ollama's and llama.cpp's APIs over one set of models.

The way of POST /v1/chat/completions through this package and back:

1. ``transport/``: ``accepting.py``, ``connection.py`` and ``wire.py`` make an ASGI request of a
   socket's bytes.
2. ``security.py``: check Host, Origin and API key; the key's owner goes into the scope.
3. ``dispatch.py``, ``transport/bodies.py``: read the body within limits; ``caller.py`` says whose
   it is.
4. ``schemas.py``: decode the body into a ``ChatRequest``; ``ignored.py`` notes unused fields.
5. ``endpoints/chat_completions.py``: run the handler; ``chat_request.py`` makes a ``ChatJob``
   (``job.py``) with the help of ``sampling.py``, ``formats.py``, ``tools.py`` and ``messages.py``,
   in a thread of ``threads.py``.
6. ``service.py``: lease the model (``models.py``, ``served.py``), or refuse when the queue is full.
7. ``prepared.py``, in a thread: render, tokenize, compile the grammar, check the options.
8. ``service.Answers``: submit to the engine, then read its chunks from an inbox; the reader of the
   model's dialect turns them into events: ``Update`` and ``End``.
9. ``endpoints/chat_completions.py``, ``chat_answer.py``, ``usage.py``: events become a completion
   or the chunks of a stream; ``metrics.py`` counts.
10. ``endpoint.Json`` or ``stream.Stream``: send the response; ``transport/connection.py`` writes
    it as fast as the client reads. A client that leaves cancels the request in ``dispatch.py``.
"""
