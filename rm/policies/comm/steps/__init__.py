"""What communication policies share."""
