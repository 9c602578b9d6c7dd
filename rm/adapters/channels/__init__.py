"""How alerts leave: mail, webhooks, commands."""
