"""Speech to text with Whisper's models: audio files in, texts with times out."""
