"""Admin calls through librdkafka: topics, offsets, groups, rights, transactions."""
