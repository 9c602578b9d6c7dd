"""The ten tasks of the playbook benchmark, in Ansible's language and in pyinfra's, and how to undo them."""

from __future__ import annotations

TEMPLATE = """# {{ host }}
workers = {{ workers }}
{% for name in names %}
path = /srv/bench/{{ name }}
{% endfor %}
"""

# `facts` is true or false
PLAYBOOK = """\
- hosts: all
  gather_facts: {facts}
  vars:
    workers: 4
    names: [a, b, c]
    host: "{{{{ inventory_hostname }}}}"
  tasks:
    - user: {{name: bench, shell: /bin/sh, system: true}}
    - file: {{path: /srv/bench, state: directory, owner: bench, mode: "0755"}}
    - copy: {{content: "{{{{ item }}}} of {{{{ workers }}}}\\n", dest: "/srv/bench/{{{{ item }}}}"}}
      loop: "{{{{ names }}}}"
    - template: {{src: bench.conf.j2, dest: /srv/bench/bench.conf, mode: "0644"}}
    - lineinfile: {{path: /srv/bench/settings, line: limit = 9, regexp: "^limit", create: true, mode: "0644"}}
    - command: /bin/true
      changed_when: false
    - package: {{name: coreutils, state: present}}
    - shell: pgrep -x sshd >/dev/null
      changed_when: false
    - shell: echo made >/srv/bench/made
      args: {{creates: /srv/bench/made}}
    - stat: {{path: /srv/bench/bench.conf}}
      register: written
"""

EMPTY = """\
- hosts: all
  gather_facts: false
  tasks: []
"""

UNDO = """\
- hosts: all
  gather_facts: false
  tasks:
    - user: {name: bench, state: absent}
    - file: {path: /srv/bench, state: absent}
"""

# an inventory and a deploy of pyinfra's
PYINFRA_HOST = (
    '("{name}", {{"ssh_hostname": "{address}", "ssh_user": "root", "ssh_key": "{key}",'
    ' "ssh_known_hosts_file": "{known_hosts}"}}),'
)
PYINFRA = """\
from io import StringIO
from pyinfra import host
from pyinfra.facts.files import File
from pyinfra.operations import apt, files, server

names, workers = ["a", "b", "c"], 4
server.user(user="bench", shell="/bin/sh", system=True)
files.directory(path="/srv/bench", user="bench", mode="755")
for name in names:
    files.put(src=StringIO(f"{name} of {workers}\\n"), dest=f"/srv/bench/{name}", mode="644")
files.template(src="bench.conf.j2", dest="/srv/bench/bench.conf", mode="644",
               host=host.name, workers=workers, names=names)
files.line(path="/srv/bench/settings", line="^limit.*", replace="limit = 9")
server.shell(commands=["/bin/true"])
apt.packages(packages=["coreutils"])
server.shell(commands=["pgrep -x sshd >/dev/null"])
server.shell(commands=["test -e /srv/bench/made || echo made >/srv/bench/made"])
host.get_fact(File, path="/srv/bench/bench.conf")
"""
