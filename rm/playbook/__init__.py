"""Playbooks, purely: YAML text -> Playbook; play + facts -> steps. Ansible's language, our own engine."""
