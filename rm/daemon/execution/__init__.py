"""The hands: launches, stops, deliveries, logs, what agents say."""
