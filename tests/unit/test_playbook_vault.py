"""ansible-vault's format, secrets out of what is shown, inventories with what stands beside, the history."""

import base64
import json
import zlib

import pytest

from rm.adapters.hosts.settings import SshSettings
from rm.adapters.playbook.files import LocalFiles
from rm.adapters.playbook.history import entry_of, keep, runs
from rm.adapters.playbook.inventory_files import read_beside, read_inventory
from rm.adapters.playbook.run import run_playbook
from rm.adapters.playbook.sources import ThisMachine
from rm.adapters.playbook.vault import Vault, read_password, seal
from rm.cli.playbook.given import vault_of
from rm.errors import ConfigError, UsageError
from rm.playbook.inventory.hosts import to_hosts
from rm.playbook.model.problems import TemplateProblem
from rm.playbook.model.steps import TaskResult
from rm.playbook.read.parse import parse_playbook
from rm.playbook.run.evaluate import HostPlay, Options
from rm.playbook.run.lookups import seeker
from rm.playbook.run.report import Report
from rm.playbook.template.template import Layer, Scope, evaluate
from rm.playbook.template.variables import HostState

# made by ansible-vault of ansible-core 2.19 with the password "pass1": "inlinesecret"
SEALED = """\
$ANSIBLE_VAULT;1.1;AES256
30333163323366626263386562653463646339356235636330643764393163666665383338633634
6132623734353062623632623665653362386338373036630a613131373139623130383037663139
63613362623338326532653338316338643465383633633636633238663339313434386236393362
3262386465393436650a626561333632353334313865333937356362386134313363343361653565
6534
"""


def test_what_ansible_vault_sealed_opens_only_with_its_password():
    vault = Vault([b"wrong", b"pass1"])
    assert vault(SEALED) == "inlinesecret"
    assert vault.secrets == {"inlinesecret"}
    with pytest.raises(UsageError, match="None of the vault passwords"):
        Vault([b"wrong"])(SEALED)
    with pytest.raises(UsageError, match="vault-password-file"):
        Vault([])(SEALED)
    with pytest.raises(UsageError, match="damaged"):
        vault.open(SEALED.replace("3", "4", 9).encode()[:200])


@pytest.mark.parametrize("plain", [b"", b"x" * 15, b"x" * 16, bytes(range(256))])
def test_sealing_and_opening(plain):
    assert Vault([b"p"]).open(seal(plain, b"p", b"s" * 32).encode()) == plain


def test_password_files_and_programs(tmp_path):
    (tmp_path / "file").write_text("secret\n")
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho from program\n")
    program.chmod(0o755)
    assert read_password(str(tmp_path / "file")) == b"secret"
    assert read_password(f"dev@{tmp_path / 'file'}") == b"secret"
    assert read_password(str(program)) == b"from program"
    with pytest.raises(UsageError, match="No such file"):
        read_password(str(tmp_path / "none"))


def write(top, files):
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)


INVENTORY = {
    "inv/hosts.ini": "[web]\nw[1:2] own=inventory\n[db]\nd1\n[all:vars]\nwho=inventory\nzone=x\n",
    "inv/more.yml": "db: {vars: {who: db group}}\n",
    "inv/group_vars/all.yml": "who: inventory all\nlevel: 1\n",
    "inv/group_vars/web/a.yml": "who: inventory web\n",
    "inv/group_vars/web/b.yml": "more: true\n",
    "inv/host_vars/w2.yml": "who: inventory w2\nown: beside\n",
    "play/group_vars/all.yml": "who: playbook all\nlevel: 2\n",
    "play/host_vars/w2.yml": "who: playbook w2\n",
}


def test_variables_beside_inventory_and_playbook_in_ansibles_order(tmp_path):
    write(tmp_path, INVENTORY)
    inventory, beside = read_inventory([str(tmp_path / "inv")])
    playbook = read_beside(tmp_path / "play")
    merged = {name: inventory.merged(name, beside, playbook) for name in inventory.hosts}
    assert [merged[h]["who"] for h in ("w1", "w2", "d1")] == ["inventory web", "playbook w2", "playbook all"]
    assert [merged[h].get("own") for h in ("w1", "w2")] == ["inventory", "beside"]
    assert merged["w1"]["more"] is True
    assert merged["d1"]["level"] == 2
    alone = {host.name: dict(host.variables) for host in to_hosts(inventory)}
    assert (alone["w2"]["who"], alone["d1"]["level"]) == ("inventory w2", "1")


def test_encrypted_group_vars_need_the_password_and_are_left_out_without_a_vault(tmp_path):
    write(tmp_path, {"hosts": "a\n", "group_vars/all.yml": seal(b"token: topsecret\n", b"p")})
    hosts = str(tmp_path / "hosts")
    assert read_inventory([hosts], Vault([b"p"]))[0].hosts["a"].variables == {"token": "topsecret"}
    assert read_inventory([hosts])[0].hosts["a"].variables == {}
    with pytest.raises(ConfigError, match="vault-password-file"):
        read_inventory([hosts], Vault([]))


def test_sources_that_are_no_inventory(tmp_path):
    assert list(read_inventory(["a,b[1:2]"])[0].hosts) == ["a", "b1", "b2"]
    write(tmp_path, {"script": "#!/bin/sh\necho {}\n"})
    (tmp_path / "script").chmod(0o755)
    with pytest.raises(ConfigError, match="program"):
        read_inventory([str(tmp_path / "script")])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_inventory([str(tmp_path / "none")])


PLAYS = """\
- hosts: all
  gather_facts: false
  vars_files: [secret.yml]
  tasks:
  - {name: "use {{ token }}", command: "echo {{ token }}", register: r, changed_when: false}
  - {name: kept, assert: {that: r.stdout == 'topsecret'}}
  - debug: {msg: "{{ r }}"}
  - {command: "cat {{ none }}{{ token }}", ignore_errors: true}
  - {set_fact: {at: "{{ hostvars.two.r.stdout | length }}"}}
  - {name: here, command: hostname, delegate_to: localhost, run_once: true, changed_when: false}
  - {copy: {content: "{{ token }}\\n", dest: "{{ playbook_dir }}/out"}, run_once: true, no_log: true}
"""


def test_on_this_machine_secrets_work_and_are_never_shown(tmp_path):
    write(tmp_path, {"site.yml": PLAYS, "secret.yml": seal(b"token: topsecret\n", b"p"),
                     "hosts": "one ansible_connection=local\ntwo ansible_connection=local\n"})  # fmt: skip
    hosts = to_hosts(read_inventory([str(tmp_path / "hosts")])[0])
    shown = []
    report = run_playbook(
        tmp_path / "site.yml", hosts, SshSettings(known_hosts=tmp_path / "none"), diff=True,
        files=LocalFiles(Vault([b"p"])), progress=lambda event: shown.append(repr(event)),
    )  # fmt: skip
    assert report.ok, report.failures()
    assert (tmp_path / "out").read_text() == "topsecret\n"
    everything = "".join(shown) + repr(report)
    assert "topsecret" not in everything
    assert "use ********" in everything
    with pytest.raises(UsageError, match="encrypted"):
        run_playbook(tmp_path / "site.yml", hosts, SshSettings(known_hosts=tmp_path / "none"))


def test_the_history_keeps_results_and_no_values(tmp_path):
    report = Report("site.yml", False, {
        "a": [TaskResult("a", "p", "t", "command", "changed")],
        "b": [TaskResult("b", "p", "t", "command", "failed", "no")],
    })  # fmt: skip
    for limit in ("one", "two"):
        entry = entry_of(report, by="me", began="2026-01-01T00:00:00+00:00", took_s=1.5, inventory="hosts",
                         limit=limit, tags=(), variables={"password": "topsecret"})  # fmt: skip
        keep(tmp_path / "state", entry)
    with (tmp_path / "state/playbooks.jsonl").open("a") as file:
        file.write('{"torn')
    found = runs(tmp_path / "state")
    assert [one["limit"] for one in found] == ["one", "two"]
    assert (found[0]["result"], found[0]["failed_hosts"], found[0]["recap"]["changed"]) == (
        "failed",
        ["b"],
        1,
    )
    assert found[0]["variables"] == ["password"]
    assert "topsecret" not in json.dumps(found)
    assert (tmp_path / "state/playbooks.jsonl").stat().st_mode & 0o777 == 0o600
    assert runs(tmp_path / "none") == []


@pytest.mark.parametrize(
    "task",
    [
        "copy: {src: one, dest: /x, decrypt: %s}",
        "copy: {src: tree/, dest: /x, decrypt: %s}",
        "script: {cmd: one, decrypt: %s}",
        "unarchive: {src: one, dest: /x, decrypt: %s}",
    ],
)
def test_what_is_not_to_be_decrypted_travels_as_it_is(tmp_path, task):
    sealed = seal(b"s3cret-text", b"p", b"s" * 32).encode()
    (tmp_path / "files" / "tree").mkdir(parents=True)
    for name in ("one", "tree/two"):
        (tmp_path / "files" / name).write_bytes(sealed)
    for decrypt, content in (("false", sealed), ("true", b"s3cret-text")):
        files = LocalFiles(Vault([b"p"]))
        text = f"- hosts: all\n  gather_facts: false\n  tasks:\n  - {task % decrypt}\n"
        made = parse_playbook(text, str(tmp_path / "site.yml"), files)
        host = HostPlay(made.plays[0], HostState("a", {}), files, Options(str(tmp_path)))
        args = host.next_batch().steps[0].args
        sent = args.get("content") or args["files"]["two"]
        assert zlib.decompress(base64.b64decode(sent)) == content


# made by the filter `vault` of ansible-core 2.19: 'plain' | vault('pw', 'salt', 'lab')
BY_FILTER = """\
$ANSIBLE_VAULT;1.2;AES256;lab
37333631366337340a39636265313330373766336262633464316361396265633638656133386630
3735323662393231616464343864373230633238663531383265616438393630300a363138376238
6134313965636566323731376233323437326333326134666161
"""
EVIL = "{{ lookup('pipe', 'touch %s') }}"


def filtered(text, vault=None, **variables):
    """What a template gives on this machine; the variables are a host's."""
    machine = ThisMachine(vault=vault)
    return evaluate(text, Scope([Layer(variables, False)], seek=seeker(LocalFiles(), (), machine)))


def test_the_vault_filters_give_and_take_ansible_s_format():
    assert filtered("{{ 'plain' | vault('pw', 'salt', 'lab') }}") == BY_FILTER
    assert filtered("{{ 'plain' | vault('pw') }}").startswith("$ANSIBLE_VAULT;1.2;AES256;filter_default\n")
    assert filtered("{{ 'plain' | vault('pw', vault_id='default') }}").startswith(
        "$ANSIBLE_VAULT;1.1;AES256\n"
    )
    assert filtered("{{ ('é' | vault('pw')) | unvault('pw') }} {{ 'bare' | unvault('pw') }}") == "é bare"
    vault = Vault([])
    assert filtered("{{ sealed | unvault('pw') }}", vault, sealed=BY_FILTER) == "plain"
    assert vault.secrets == {"plain"}  # it is hidden from here on, as what the vault's password opens


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ sealed | unvault('no') }}", "the filter 'unvault': it cannot be opened: None of the vault"),
        ("{{ 4711 | vault('pw') }}", "the filter 'vault': 'data' must be a text, not of the type int"),
        ("{{ 'a' | vault(pin) }}", "the filter 'vault': 'secret' must be a text, not of the type int"),
        ("{{ 'a' | vault(none) }}", "'secret' must be a text, not of the type NoneType"),
        ("{{ 'a' | vault('pw', pin) }}", "'salt' must be a text, not of the type int"),
        ("{{ [pin] | unvault('pw') }}", "'sealed' must be a text, not of the type list"),
        ("{{ sealed | unvault(pin) }}", "the filter 'unvault': 'secret' must be a text, not of the type int"),
        ("{{ 'a' | vault('pw', '') }}", "the salt is empty"),
        ("{{ 'a' | vault('pw', vault_id='a b') }}", "'a b' is no name of a vault id"),
        ("{{ 'a' | vault('pw', wrap_object=true) }}", "has no 'wrap_object'"),
        ("{{ ('a' | vault('pw'))[:60] | unvault('pw') }}", "damaged"),
        ("{{ sealed | unvault(none_such) }}", "'none_such' is undefined"),
        ("{{ lookup('vault', 'a', 'pw') }}", "unknown lookup 'vault'"),
    ],
)
def test_the_vault_filters_refuse_in_a_sentence(text, said):
    with pytest.raises(TemplateProblem) as problem:
        filtered(text, sealed=BY_FILTER, pin=123456)
    assert said in str(problem.value)
    assert "123456" not in str(problem.value)


@pytest.mark.parametrize(
    "text",
    [
        "{{ said | vault('pw') }}",
        "{{ 'a' | vault(said) }}",
        "{{ 'a' | vault('pw', said) }}",
        "{{ (sealed ~ said) | unvault('pw') }}",
        "{{ sealed | unvault(said) }}",
    ],
)
def test_the_vault_filters_refuse_a_lone_surrogate_in_a_sentence(text):
    with pytest.raises(TemplateProblem, match=r"a text holds what is no character of Unicode$"):
        filtered(text, sealed=BY_FILTER, said="se\udc80cret")


def test_what_a_host_sealed_is_opened_and_never_evaluated(tmp_path):
    evil = EVIL % (tmp_path / "owned")
    sealed = seal(evil.encode(), b"pw")
    assert filtered("{{ r.stdout | unvault('pw') }}", r={"stdout": sealed}) == evil
    assert filtered("{{ r.stdout | unvault('pw') }}", r={"stdout": evil}) == evil
    with pytest.raises(TemplateProblem):
        filtered("{{ 'a' | vault('pw', vault_id=r) }}", r=evil)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("ids", "asked"),
    [
        (("prompt",), ["default"]),
        (("dev@prompt", "{file}", "prompt"), ["dev", "default"]),
        (("dev@{file}",), []),
    ],
)
def test_passwords_of_ids_that_prompt_are_asked_for(tmp_path, monkeypatch, ids, asked):
    (tmp_path / "file").write_text("filed\n")
    texts = []
    monkeypatch.setattr("click.prompt", lambda text, **_: texts.append(text) or f"typed {text}")
    vault = vault_of([one.format(file=tmp_path / "file") for one in ids], False)
    assert texts == [f"Vault password ({name})" for name in asked]
    filed = [b"filed"] if "{file}" in "".join(ids) else []
    assert vault.passwords == [*filed, *(f"typed {text}".encode() for text in texts)]
