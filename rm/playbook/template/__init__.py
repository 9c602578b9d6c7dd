"""Jinja2 as playbooks use it: templates, variables, filters."""
