"""Speech to text with Whisper models: audio files in, timed transcripts out."""
