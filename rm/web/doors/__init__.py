"""Where connections come in, and what each user may cost."""
