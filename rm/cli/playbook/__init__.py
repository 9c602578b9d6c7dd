"""`rmx playbook`, with its views and questions."""
