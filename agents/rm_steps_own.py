"""`own_module`: a module that a playbook, a role or a collection brings along, run as Ansible runs it.

One that imports ansible.module_utils comes as a zip with what it imports; others are programs that read a
file of arguments. What they answer is JSON on standard output.
"""

import json
import os
import shlex
import sys
import tempfile

from rm_steps_base import StepFailed, content_diff, execute, unpacked

# arguments: the zip, the file of arguments, the module's name in the zip. The module runs as the program, and
# gets of what Ansible adds to the arguments as much as this version of ansible-core knows.
# Nothing is imported from the directory that it starts in: that is left out before the first import of a file
PROGRAM = """import sys;sys.path=[p for p in sys.path if p]
import json,runpy
z,f,m=sys.argv[1:4]
sys.path.insert(0,z)
from ansible.module_utils import basic
from ansible.module_utils.common import parameters as p
with open(f) as a: g=json.load(a)
k=set(p.PASS_VARS)|set(p.PASS_BOOLS)
g={n:v for n,v in g.items() if not n.startswith('_ansible_') or n[9:] in k}
basic._ANSIBLE_ARGS=json.dumps({'ANSIBLE_MODULE_ARGS':g}).encode()
basic._ANSIBLE_PROFILE='legacy'
sys.argv=[m]
runpy.run_module(m,init_globals={'_module_fqn':m,'_modlib_path':z},run_name='__main__',alter_sys=True)"""


def _told(run, args, directory):
    """The arguments with those that Ansible adds for each module."""
    return dict(
        args["arguments"],
        _ansible_check_mode=run.check,
        _ansible_no_log=bool(args.get("no_log")),
        _ansible_debug=False,
        _ansible_diff=run.diff,
        _ansible_verbosity=0,
        _ansible_version=args["version"],
        _ansible_module_name=args["name"],
        _ansible_syslog_facility="LOG_USER",
        _ansible_selinux_special_fs=["fuse", "nfs", "vboxsf", "ramfs", "9p", "vfat"],
        _ansible_string_conversion_action="warn",
        _ansible_socket=None,
        _ansible_shell_executable="/bin/sh",
        _ansible_keep_remote_files=False,
        _ansible_tmpdir=directory,
        _ansible_remote_tmp=directory,
        _ansible_ignore_unknown_opts=False,
        _ansible_target_log_info=None,
        _ansible_tracebacks_for=[],
    )


def _written(path, data, mode=0o600):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(fd, "wb") as file:
        file.write(data)
    return path


def _program(run, args, directory):
    """The command that runs the module; its files are in `directory`."""
    data, kind = unpacked(args["content"]), args["kind"]
    told = _told(run, args, directory)
    if kind == "python":
        given = _written(directory + "/args", json.dumps(told).encode())
        code = _written(directory + "/module.zip", data)
        return [sys.executable or "/usr/bin/python3", "-c", PROGRAM, code, given, args["module"]]
    if kind == "json_args":
        data = data.replace(args["marker"].encode(), json.dumps(told).encode())
    program = _written(directory + "/" + os.path.basename(args["module"].rpartition(".")[2]), data, 0o700)
    if kind == "key_value":
        pairs = ["%s=%s" % (name, shlex.quote(str(value))) for name, value in told.items()]
        given = [_written(directory + "/args", " ".join(pairs).encode())]
    else:
        given = [] if kind == "json_args" else [_written(directory + "/args", json.dumps(told).encode())]
    if kind == "binary":
        return [program, *given]
    words = args["interpreter"]
    named = [os.path.basename(word) for word in words]
    if any(name.startswith("python") for name in named):
        words = [sys.executable or "/usr/bin/python3"]
    elif not os.path.isfile(words[0]):
        raise StepFailed(
            "The module '%s' is for %s, which this host does not have." % (args["name"], words[0])
        )
    return [*words, program, *given]


def _answer(out):
    """The JSON among what a module said; None when there is none. Other lines may stand around it."""
    lines = out.splitlines()
    start = next((i for i, line in enumerate(lines) if line.strip().startswith("{")), None)
    if start is None:
        return None
    end = next((i for i in range(len(lines), start, -1) if lines[i - 1].strip().endswith("}")), None)
    if end is None:
        return None
    try:
        found = json.loads("\n".join(lines[start:end]))
    except (ValueError, RecursionError):  # one that is too deep is none, either
        return None
    return found if isinstance(found, dict) else None


def _diffs(run, diff):
    """Ansible's forms of a diff as unified ones."""
    found = []
    for one in diff if isinstance(diff, list) else [diff] if diff else []:
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, dict) and "prepared" in one:
            found.append(str(one["prepared"]))
        elif isinstance(one, dict) and ("before" in one or "after" in one):
            texts = [_text(one.get(key)) for key in ("before", "after")]
            name = str(one.get("after_header") or one.get("before_header") or "after")
            found += content_diff(run, name, *texts) if texts[0] != texts[1] else []
    return found


def _text(value):
    if isinstance(value, (dict, list)):
        value = json.dumps(value, sort_keys=True, indent=4) + "\n"
    return ("" if value is None else str(value)).encode("utf-8", "replace")


def _warning(told):
    """The text of a warning, which ansible-core 2.19's modules tell as a summary of an event."""
    event = told.get("event") if isinstance(told, dict) else None
    return event["msg"] if isinstance(event, dict) and "msg" in event else told


def do_own_module(run, args):
    with tempfile.TemporaryDirectory(prefix="rm-module-") as directory:
        try:
            code, out, err = execute(_program(run, args, directory))
        except OSError as problem:
            raise StepFailed(
                "The module '%s' cannot be started: %s." % (args["name"], problem.strerror)
            ) from None
    found = _answer(out)
    if found is None:
        said = (err or out).strip()[-2000:] or "it says nothing"
        whole = {"rc": code, "module_stdout": out, "module_stderr": err}
        raise StepFailed("MODULE FAILURE: '%s' does not answer with JSON: %s" % (args["name"], said), **whole)
    hidden = ("invocation",)
    result = {k: v for k, v in found.items() if not k.startswith("_ansible_") and k not in hidden}
    if isinstance(result.get("warnings"), list):
        result["warnings"] = [_warning(one) for one in result["warnings"]]
    for name in ("changed", "failed", "skipped"):
        if name in result:
            result[name] = bool(result[name]) and str(result[name]).lower() not in ("false", "no", "0")
    if "failed" not in result and result.get("rc", 0) not in (0, "0"):
        result["failed"] = True
    if result.get("failed"):
        result.setdefault("msg", "The module '%s' failed and does not say why." % args["name"])
    for name in ("stdout", "stderr"):
        if isinstance(result.get(name), str):
            result.setdefault(name + "_lines", result[name].splitlines())
    return dict({"changed": False}, **dict(result, diff=_diffs(run, result.get("diff")) if run.diff else []))
