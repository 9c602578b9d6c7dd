"""`pip`: Python packages are installed, or are not, in a virtual environment or beside the system's."""

import json
import os
import re

from rm_steps_base import (
    StepFailed,
    asks,
    execute,
    expanded,
    find_tool,
    must,
    plain_environment,
    state_diff,
    tool,
)

UNKNOWN = "?"  # a version that check mode cannot know


def _pip(run, args):
    """(command, whether the virtual environment has to be made first)."""
    place = args.get("virtualenv")
    if place:
        place = expanded(place)
        program = os.path.join(place, "bin", "pip")
        if os.path.exists(program) or (run.check and run.planned["paths"].get(place) == "directory"):
            return [program], False
        command = args["virtualenv_command"].split()
        argv = [tool(command[0]), *command[1:]]
        if args.get("virtualenv_python") and "-m" not in command:
            argv += ["-p", args["virtualenv_python"]]
        argv += ["--system-site-packages"] if args.get("virtualenv_site_packages") else []
        if not run.check:
            must([*argv, place])
        run.plan(place, "directory")
        return [program], True
    if args.get("executable"):
        return [tool(args["executable"])], False
    python = find_tool("python3")
    if python and asks([python, "-m", "pip", "--version"])[0] == 0:
        return [python, "-m", "pip"], False
    return [tool("pip3", "pip")], False


def _installed_distributions(command):
    """{normal name: version} of what pip sees."""
    if not os.path.exists(command[0]):  # check mode: its environment is not made
        return {}
    code, out = asks([*command, "list", "--format=json", "--disable-pip-version-check"])
    try:
        found = json.loads(out) if code == 0 else []
    except ValueError:
        found = []
    return {_normal(one["name"]): one["version"] for one in found}


def _name(requirement):
    return _normal(re.split(r"[=<>!~;@\[ ]", requirement.strip(), maxsplit=1)[0])


def _normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def _parts(requirement):
    """(normal name, version specifiers); None for other requirements, such as a URL or a file."""
    match = re.fullmatch(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*((?:[<>=!~].*)?)", requirement)
    return (_normal(match.group(1)), match.group(2).strip()) if match else None


# pip brings the rules of versions with it
FITS = """import json, sys
from pip._vendor.packaging.specifiers import SpecifierSet
print(json.dumps([SpecifierSet(x).contains(v, prereleases=True) for x, v in json.load(sys.stdin)]))"""


def _satisfied(requirement, installed, command):
    """Is a requirement met by what is installed? None: only pip itself can decide (a URL, a marker …)."""
    parts = _parts(requirement)
    if parts is None or ";" in requirement or "@" in requirement:
        return None
    seen = installed.get(parts[0])
    if seen is None or not parts[1]:
        return seen is not None
    if seen == UNKNOWN:
        return None
    if re.fullmatch(r"==\s*[\w.!+-]+", parts[1]) and parts[1].lstrip("= ") == seen:
        return True
    python = command[0] if "-m" in command else os.path.join(os.path.dirname(command[0]), "python")
    if not os.path.exists(python):
        return None
    code, out, _ = execute(
        [python, "-c", FITS], env=plain_environment(), stdin=json.dumps([[parts[1], seen]])
    )
    return json.loads(out)[0] if code == 0 else None


def _expected(requirement, state):
    """What check mode takes for granted of a simple requirement from now on: (normal name, version)."""
    name, _, version = requirement.partition("==")
    return _name(name), ("" if state == "absent" else version.strip() or UNKNOWN)


def _foretold(requirement, state, before):
    name, _, version = requirement.partition("==")
    name = _normal(re.split(r"[ \[]", name, maxsplit=1)[0])
    new = None if state == "absent" else version.strip() or "newest"
    return "%s: %s -> %s" % (name, before.get(name), new)


def do_pip(run, args):
    names = list(args["name"] or ())
    if args.get("version"):
        if len(names) != 1:
            raise StepFailed("'version' needs exactly one 'name'.")
        names = ["%s==%s" % (names[0], args["version"])]
    command, made = _pip(run, args)
    state, changes = args["state"], (["virtual environment " + args["virtualenv"]] if made else [])
    result = {"changed": made, "name": args["name"], "version": args.get("version"), "state": state}
    result.update(virtualenv=args.get("virtualenv"), requirements=args.get("requirements"))
    planned = run.planned["states"].setdefault("pip " + command[0], {}) if run.check else {}
    before = {
        name: version for name, version in {**_installed_distributions(command), **planned}.items() if version
    }
    if state == "absent":
        todo = [n for n in names if _name(n) in before]
        argv = ["uninstall", "-y", *todo]
    else:
        always = state in ("latest", "forcereinstall") or args.get("requirements") or args.get("editable")
        todo = [n for n in names if always or not _satisfied(n, before, command)]
        argv = ["install", *(["-U"] if state == "latest" else [])]
        argv += ["--force-reinstall"] if state == "forcereinstall" else []
        argv += ["--break-system-packages"] if args.get("break_system_packages") else []
        argv += args["extra_args"]
        argv += ["-e"] if args.get("editable") else []
        argv += todo + (["-r", args["requirements"]] if args.get("requirements") else [])
    result["cmd"] = [*command, *argv]
    if todo or args.get("requirements"):
        unsure = bool(args.get("requirements")) or state == "latest"
        unsure = unsure or any(_satisfied(n, before, command) is None for n in todo)
        if run.check:
            if unsure:
                said = "might run: pip " + " ".join(argv)
                return dict(result, skipped=not made, might_run=True, msg=said)
            changes += [_foretold(name, state, before) for name in todo]
            planned.update(_expected(name, state) for name in todo)
        else:
            chdir = expanded(args["chdir"]) if args.get("chdir") else None
            environment = plain_environment(PIP_DISABLE_PIP_VERSION_CHECK="1")
            code, out, err = execute([*command, *argv], chdir, environment)
            if code != 0:
                raise StepFailed("pip failed (%d): %s" % (code, (err or out).strip()[-2000:]), rc=code)
            after = _installed_distributions(command)
            for name in sorted(set(before) | set(after)):
                if before.get(name) != after.get(name):
                    changes.append("%s: %s -> %s" % (name, before.get(name), after.get(name)))
            result["stdout"] = out
            if state == "forcereinstall" and not changes:
                changes += todo
    return dict(result, changed=bool(changes), diff=state_diff(run, "pip", changes))
