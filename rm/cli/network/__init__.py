"""Commands about the network: measurements, monitoring, alerts."""
