"""From files to plays and tasks: parsing, roles, arguments, Ansible's settings."""
