"""Where in sshd's part of PAM the gate may stand: root starts its program with PAM's environment. And what
may stand before it in sshd's settings, where there is no PAM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent_process import AGENTS

sys.path.insert(0, str(AGENTS))
import rm_ssh_gate

PROGRAM = "/usr/bin/python3 -S -E /opt/rm/agents/rm_ssh_gate.py pam"
GATE = f"session required pam_exec.so type=open_session quiet stdout {PROGRAM}\n"
ON_THREE_LINES = "session required \\\n  \\\n pam_unix.so # here\n \t\n"
READS = "session  required  pam_env.so user_readenv=1 envfile=/etc/default/locale\n"
MANAGER = "session optional pam_systemd.so\n"


def refused(folder: Path, text: str, **included: str) -> str:
    """Of a service's file with what it includes; "" where the order is safe."""
    for name, what in included.items():
        (folder / name).write_text(what)
    (folder / "sshd").write_text(text)
    try:
        rm_ssh_gate.check_order(folder / "sshd", (folder,))
    except rm_ssh_gate.Refused as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        READS,
        ON_THREE_LINES + GATE,
        GATE,
        MANAGER + GATE + READS,
        "# " + READS + GATE,
        READS.replace("=1", "=0") + GATE,
        "@include nowhere\n" + GATE,
    ],
)
def test_a_safe_order(tmp_path: Path, text: str) -> None:
    assert refused(tmp_path, text) == ""


@pytest.mark.parametrize(
    "line",
    [
        READS,
        READS.replace("=1", "=2"),
        "-" + READS,
        READS.replace("required", "[success=ok default=ignore]"),
        READS.replace("required", "\\\n required"),
        READS.replace("session", "auth"),
        READS.replace("session", "Session"),
        "@include other\n",
        "@INCLUDE other\n",
        "session include other\n",
        "session substack other\n",
        "session SUBSTACK other\n",
        "session [include] other\n",
        "@include other another\n",
        "# a comment ends with its line \\\n" + READS,
        "password required pam_unix.so # so does one behind a line \\\n" + READS,
        READS.replace("\n", " # \\\n"),
    ],
)
def test_nothing_that_a_user_wrote_becomes_the_environment_of_roots_program(
    tmp_path: Path, line: str
) -> None:
    assert "~/.pam_environment" in refused(tmp_path, line + GATE, other=READS)


@pytest.mark.parametrize(
    "line",
    [
        "password required pam_unix.so \\ \n" + READS,  # libpam 1.5 goes on behind blanks
        "password required pam_unix.so \\\r\n" + READS,
        "password required pam_unix.so \\\n\n" + READS,  # … and over a blank line and a comment
        "password required pam_unix.so \\\n# why\n" + READS,
        "sesion required pam_env.so user_readenv=1\n",
        "[session] required pam_env.so user_readenv=1\n",
        "session required [pam_env.so] user_readenv=1\n",
        "session required\n",
        "@include\n",
        "@include other\n",
        "\f" + READS,
    ],
)
def test_what_pam_may_read_in_another_way_is_refused(tmp_path: Path, line: str) -> None:
    assert "cannot be understood" in refused(tmp_path, line + GATE, other="session required pam_unix.so \\")


def test_it_does_not_run_at_the_end_of_a_connection(tmp_path: Path) -> None:
    assert "type=open_session" in refused(tmp_path, GATE.replace(" type=open_session", "") + READS)


def test_what_is_included_for_another_part_does_not_count(tmp_path: Path) -> None:
    assert refused(tmp_path, "password include other\n" + GATE, other=READS) == ""


def test_files_that_include_each_other_come_to_an_end(tmp_path: Path) -> None:
    assert "~/.pam_environment" in refused(tmp_path, "@include sshd\n" + READS + GATE)


def test_nothing_takes_the_connection_out_of_the_job_afterwards(tmp_path: Path) -> None:
    assert "pam_systemd.so" in refused(tmp_path, GATE + "@include other\n", other=MANAGER)


@pytest.mark.parametrize("line", ["account sufficient pam_systemd_home.so\n", "session include other\n"])
def test_no_variable_of_a_users_record_becomes_the_environment_of_roots_program(
    tmp_path: Path, line: str
) -> None:
    home = "session optional pam_systemd_home.so\n"
    assert "systemd-homed" in refused(tmp_path, line + MANAGER + GATE, other=home)
    assert refused(tmp_path, line.replace("_home", "") + MANAGER + GATE, other="") == ""


ROOT = "session [success=1 default=ignore] pam_succeed_if.so quiet uid eq 0\n"
JUMP = "session [success=1 default=ignore] pam_succeed_if.so service in crond quiet use_uid\n"
UNIX = "session required pam_unix.so\n"


@pytest.mark.parametrize(
    "before",
    [
        "session sufficient pam_unix.so\n",
        "session Sufficient pam_unix.so\n",
        "session [sufficient] pam_unix.so\n",
        "session [success=done default=ignore] pam_unix.so\n",
        "session [success = done default=ignore] pam_unix.so\n",
        "session [success=donedefault=ignore] pam_unix.so\n",
        "session success=done pam_unix.so\n",
        "session [success= 2 default=ignore] pam_unix.so\n" + UNIX,
        "session [success=2default=ignore] pam_unix.so\n" + UNIX,
        "session [success=ignore default=done] pam_succeed_if.so quiet uid eq 0\n",
        "@include other\n",
        JUMP,
        "session [default=2] pam_unix.so\n" + UNIX,
        "session [default=3] pam_unix.so\nsession substack two\n" + UNIX,
    ],
)
def test_nobody_comes_in_past_the_gate(tmp_path: Path, before: str) -> None:
    others = {"other": UNIX.replace("required", "sufficient"), "two": UNIX + UNIX}
    assert "in no job" in refused(tmp_path, before + GATE, **others)


@pytest.mark.parametrize(
    "before",
    [
        ROOT,
        JUMP + ROOT,
        "session [success=ok ignore=ignore module_unknown=ignore default=bad] pam_selinux.so close\n",
        "session [success= 1default = ignore] pam_unix.so\n" + UNIX,
        JUMP + UNIX,  # as in Debian's and Fedora's files
        "session [default=1] pam_permit.so\nsession requisite pam_deny.so\n@include two\n",
        "auth sufficient pam_unix.so\naccount sufficient pam_unix.so\n",
        "session substack other\n",  # which ends itself alone
        "session [default=2] pam_unix.so\nsession substack two\n" + UNIX,
    ],
)
def test_jumps_that_end_before_the_gate_are_safe(tmp_path: Path, before: str) -> None:
    others = {"other": UNIX.replace("required", "sufficient"), "two": UNIX + UNIX}
    assert refused(tmp_path, before + GATE, **others) == ""


def test_a_playbook_that_validates_with_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "sshd").write_text(READS + GATE)
    words = [sys.executable, "-S", "-E", str(AGENTS / "rm_ssh_gate.py"), "order", str(tmp_path / "sshd")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "user_readenv=1" in done.stderr
    (tmp_path / "sshd").write_text(GATE + READS)
    assert subprocess.run(words, check=False).returncode == 0


@pytest.mark.parametrize("what", ["order", "settings", "service"])
def test_a_file_that_is_not_there_gets_a_sentence(
    tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rm_ssh_gate.main([what, str(tmp_path / "sshd")]) == 1
    assert f"{tmp_path}/sshd cannot be read: No such file" in capsys.readouterr().err


PROGRAM_OF_KEYS = "AuthorizedKeysCommand /opt/rm/agents/rm_ssh_gate.py keys %u\n"
OURS = f"Match User *,!root\n  AuthorizedKeysFile none\n  {PROGRAM_OF_KEYS}"
KEYS = "AuthorizedKeysFile .ssh/authorized_keys\n"
PASSWORD = "AuthenticationMethods password\n"


def led_past(folder: Path, text: str, included: str = "", check: str = "settings") -> str:
    (folder / "conf.d").mkdir()
    (folder / "conf.d" / "10-site.conf").write_text(included)
    (folder / "sshd_config").write_text(text)
    try:
        rm_ssh_gate.CHECKS[check](folder / "sshd_config", folder)
    except rm_ssh_gate.Refused as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("text", "included"),
    [
        ("Match Group staff\n" + KEYS, ""),
        ('"Match" Group staff\n"AuthorizedKeysFile" .ssh/authorized_keys\n', ""),
        ('match="User" *\n  authenticationmethods = any\n', ""),
        ("Match All\n  TrustedUserCAKeys /etc/ssh/ca.pub\n", ""),
        ("Include conf.d/*.conf\n", "Match Address 10.0.0.0/8\n\tAuthorizedKeysCommand /usr/bin/keys %u\n"),
        ("Match User root\nMatch User root,ann\n" + KEYS, ""),
        ("Match User ROOT\n" + KEYS, ""),
        ("Match User bob # rm_ssh_gate.py has its own block\n" + PASSWORD, ""),
        ("Match User bob # it's bob\n" + PASSWORD, ""),
        ("Match Group old\n" + PROGRAM_OF_KEYS + "Match User bob\n" + PASSWORD, ""),
        ("Match User bob\nAuthorizedKeysCommand /usr/bin/keys # /rm_ssh_gate.py\n", ""),
        ("Match User *,!root\n" + PASSWORD, ""),
        ("Match User bob\nInclude conf.d/*.conf\n" + PASSWORD, "Match User root\n"),
        ("Match User bob\nInclude conf.d/*.conf\n", PASSWORD),
        ("Match User bob\nInclude conf.d/*.conf\nMatch User ann\n" + PASSWORD, OURS),
        ("Match User bob\n  ForceCommand a\fMatch User root\n" + PASSWORD, ""),  # lines end in \n alone
    ],
)
def test_no_other_setting_lets_users_in_past_the_gate(tmp_path: Path, text: str, included: str) -> None:
    assert "without a job" in led_past(tmp_path, text + OURS, included)


@pytest.mark.parametrize(
    "text",
    [
        KEYS + "Match Group staff\n  X11Forwarding no\n",
        "Match User root\n" + KEYS,
        "# Match All\n" + KEYS,
        "Match User 'root' # and nobody else\n" + KEYS,
        'Include "sshd_config"\n',
        "Include conf.d/*.conf\n" + KEYS,  # behind an included file its last Match has ended
        "Match User root\nInclude conf.d/*.conf\n",
    ],
)
def test_settings_that_lead_to_the_gate(tmp_path: Path, text: str) -> None:
    included = "Match User backup\n" + (PASSWORD if "Match User root\nInclude" in text else "")
    assert led_past(tmp_path, text + OURS + "Match Group staff\n" + KEYS, included) == ""


@pytest.mark.parametrize(
    "text",
    [
        "PAMServiceName other\n",
        'Match User bob\n  pamservicename="other"\n',
        "PAMServiceName sshd\nInclude conf.d/*.conf\n",
    ],
)
def test_no_setting_names_a_part_of_pam_without_the_gate(tmp_path: Path, text: str) -> None:
    assert "PAMServiceName" in led_past(tmp_path, text, "Match All\nPAMServiceName other\n", "service")


def test_the_part_of_pam_in_which_the_gate_stands_may_be_named(tmp_path: Path) -> None:
    assert led_past(tmp_path, "PAMServiceName sshd\nMatch All\n PAMServiceName sshd\n", "", "service") == ""
