#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.brought import turned


def main():
    module = AnsibleModule(
        argument_spec={
            "text": {"type": "str", "required": True},
            "times": {"type": "int", "default": 1, "aliases": ["count"]},
            "kind": {"choices": ["plain", "loud"], "default": "plain"},
        },
        supports_check_mode=True,
    )
    text = turned(module.params["text"]) * module.params["times"]
    module.exit_json(changed=module.params["kind"] == "loud", text=text)


main()
