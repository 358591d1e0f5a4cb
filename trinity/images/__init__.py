"""Images in prompts: reads and resizes them, and runs vision towers."""
