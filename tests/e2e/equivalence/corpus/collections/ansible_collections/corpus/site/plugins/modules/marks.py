#!/usr/bin/python
import os

from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule({"path": {"type": "path"}, "word": {}}, supports_check_mode=True)
    path, word = module.params["path"], module.params["word"]
    changed = not os.path.exists(path)
    if changed and not module.check_mode:
        with open(path, "w") as file:
            file.write(word)
    module.exit_json(changed=changed, word=word)


main()
