#!/usr/bin/python3
from ansible.module_utils.basic import AnsibleModule


def main():
    AnsibleModule(argument_spec={})
    raise ValueError("raised inside")


main()
