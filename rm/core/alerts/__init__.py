"""What is wrong, as alerts: findings, notices, silences, channels, draining."""
