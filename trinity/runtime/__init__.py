"""From a bound model to tokens: plan, engine, KV cache, session, sampler, generation loop."""
