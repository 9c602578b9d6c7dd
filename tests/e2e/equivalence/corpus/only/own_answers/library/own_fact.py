#!/usr/bin/python3
from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True, "aliases": ["dest"]},
            "number": {"type": "int", "default": 3},
            "kind": {"choices": ["a", "b"], "default": "a"},
            "words": {"type": "list", "elements": "str"},
            "table": {"type": "dict"},
            "secret": {"no_log": True},
            "mode": {"type": "raw"},
        },
        mutually_exclusive=[("words", "table")],
        supports_check_mode=True,
    )
    p = module.params
    if p["number"] == 13:
        module.fail_json(msg="unlucky", rc=13, number=p["number"])
    if p["number"] == 14:
        module.exit_json(skipped=True, msg="left out")
    module.warn("a warning")
    module.exit_json(
        changed=p["number"] > 5,
        params={k: v for k, v in p.items() if k != "secret"},
        ansible_facts={"x_own": p["number"], "ansible_x": p["words"]},
        diff={"before": "a\n", "after": "b\n"},
        secret_was=p["secret"],
    )


if __name__ == "__main__":
    main()
