"""Runs a loaded model: plan, engine, KV pages, scheduler, sequences, sampler."""
