"""Models on a Ray cluster: replicas behind one server, and batches over pools of actors.

It needs ``pip install "trinity-llm[ray]"``. docs/scaling.md explains it.
"""

from __future__ import annotations
