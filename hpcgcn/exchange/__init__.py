"""Messages between ranks: codecs, schedules of their rate, error feedback, staleness; presets."""
