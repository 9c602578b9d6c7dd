"""What is measured when, how it is judged, and what is remembered of it."""
