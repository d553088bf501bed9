"""Messages between ranks: codecs, rate schedules, error feedback, staleness; presets put them together."""
