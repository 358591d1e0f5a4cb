"""From a bound model to tokens: plan, engine, pages, scheduler, sequences, sampler."""
