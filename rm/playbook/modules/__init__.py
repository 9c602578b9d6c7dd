"""The playbook modules, one file each, found by file name; `rm/playbook/module.py` says their shape."""
