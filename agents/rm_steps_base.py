"""What every operation of rm_steps.py builds on: one run's flags and plans, programs, honest failures."""

import contextlib
import os
import stat as stat_module

OUTPUT_MAX_BYTES = 1 << 20  # of each stream of a command; the rest is dropped, and said so
PLANNED_MAX_BYTES = 1 << 18  # of a file's content that check mode remembers
TOOL_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


class StepFailed(Exception):
    """The step cannot reach its state; the message is a sentence."""

    def __init__(self, message, **details):
        super().__init__(message)
        self.details = details


class Run:
    """One request: its check and diff flags, and in check mode what would exist by now."""

    def __init__(self, check, diff, planned):
        self.check = check
        self.diff = diff
        # {"paths": {path: kind}, "content": {path: packed}, "attributes": {path: [mode, owner, group]},
        #  "users": [...], "groups": [...], "states": {}}
        self.planned = planned
        for name in ("paths", "content", "attributes", "states"):
            self.planned.setdefault(name, {})
        for name in ("users", "groups"):
            self.planned.setdefault(name, [])

    def kind(self, path):
        """absent, directory, file, link or other; what is planned comes before what is."""
        paths = self.planned["paths"]
        if path in paths:
            return paths[path]
        above = os.path.dirname(path)
        while above not in ("", "/"):
            if paths.get(above) == "absent":
                return "absent"
            above = os.path.dirname(above)
        try:
            mode = os.lstat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return "absent"
        for test, name in (
            (stat_module.S_ISLNK, "link"),
            (stat_module.S_ISDIR, "directory"),
            (stat_module.S_ISREG, "file"),
        ):
            if test(mode):
                return name
        return "other"

    def is_directory(self, path):
        return self.kind(path) == "directory" or (self.kind(path) == "link" and os.path.isdir(path))

    def plan(self, path, kind, data=None):
        """Remember in check mode what the real run would have made, with a file's content if short."""
        if self.check:
            self.planned["paths"][path] = kind
            self.planned["content"].pop(path, None)
            if kind == "absent":
                for one in [p for p in self.planned["attributes"] if p == path or p.startswith(path + "/")]:
                    del self.planned["attributes"][one]
            if data is not None and len(data) <= PLANNED_MAX_BYTES:
                self.planned["content"][path] = packed(data)

    def read(self, path):
        """Content of a file as it is, or as it would be by now; None when there is none to see."""
        if path in self.planned["content"]:
            return unpacked(self.planned["content"][path])
        if path in self.planned["paths"] or not os.path.exists(path):
            return None
        with open(path, "rb") as file:
            return file.read()

    def is_new_state(self, what, value):
        """Does `what` (a service, a mount …) still lack this state? In check mode the plan counts."""
        if self.check and self.planned["states"].get(what) == value:
            return False
        if self.check:
            self.planned["states"][what] = value
        return True


def packed(data):
    import base64
    import zlib

    return base64.b64encode(zlib.compress(data, 6)).decode()


def unpacked(text):
    import base64
    import zlib

    return zlib.decompress(base64.b64decode(text))


def expanded(path):
    """A path as Ansible takes one: with the step's variables of the environment, and `~`."""
    return os.path.expanduser(os.path.expandvars(path))


def absolute(path):
    path = expanded(path)
    if not os.path.isabs(path):
        raise StepFailed("The path '%s' is not absolute." % path)
    return os.path.normpath(path)


def digest(data, algorithm="sha1"):
    import hashlib

    return hashlib.new(algorithm, data).hexdigest()


def digest_of_file(path, algorithm="sha1"):
    import hashlib

    found = hashlib.new(algorithm)
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            found.update(block)
    return found.hexdigest()


# -- programs -----------------------------------------------------------------------------------


def execute(argv, cwd=None, env=None, stdin=None, timeout_s=None, preexec=None, stdout=None):
    """Run a program to its end: code, stdout, stderr. Output goes to files, so that a daemon that the
    program leaves behind cannot hold this run by keeping a pipe open. `stdout`: a descriptor that gets
    standard output instead."""
    import subprocess
    import tempfile

    with contextlib.ExitStack() as files:
        out, err = (files.enter_context(tempfile.TemporaryFile(buffering=0)) for _ in range(2))
        source = subprocess.DEVNULL
        if stdin is not None:
            source = files.enter_context(tempfile.TemporaryFile())
            source.write(stdin.encode("utf-8", "surrogateescape") if isinstance(stdin, str) else stdin)
            source.seek(0)
        try:
            code = subprocess.call(
                argv, cwd=cwd, env=env, stdin=source, stdout=out if stdout is None else stdout, stderr=err,
                timeout=timeout_s, preexec_fn=preexec,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise StepFailed("%s did not end within %d s." % (argv[0], timeout_s)) from None
        return code, _said(out), _said(err)


def _said(file):
    """The text of a file that a program has written into, as far as it is kept."""
    size = os.fstat(file.fileno()).st_size
    text = os.pread(file.fileno(), min(size, OUTPUT_MAX_BYTES), 0).decode("utf-8", "replace")
    return text if size <= OUTPUT_MAX_BYTES else text + "\n[%d bytes in all]" % size


def find_tool(*names):
    """Absolute path of the first program that the host has, "" when none."""
    import shutil

    path = os.pathsep.join(filter(None, (os.environ.get("PATH", os.defpath), TOOL_PATH)))
    for name in names:
        found = shutil.which(name, path=path)
        if found:
            return found
    return ""


def tool(*names):
    found = find_tool(*names)
    if not found:
        raise StepFailed("This host has no %s." % " or ".join(names))
    return found


def plain_environment(**more):
    return dict(os.environ, DEBIAN_FRONTEND="noninteractive", LC_ALL="C", LANGUAGE="C", **more)


def must(argv, cwd=None, stdin=None, env=None, timeout_s=None):
    """Standard output of a program that has to succeed."""
    code, out, err = execute(argv, cwd, env or plain_environment(), stdin, timeout_s)
    if code != 0:
        said = (err or out).strip()[-2000:]
        raise StepFailed("%s failed (%d): %s" % (os.path.basename(argv[0]), code, said), rc=code)
    return out


def asks(argv, cwd=None, env=None, timeout_s=None):
    """Code and standard output of a program that only looks."""
    code, out, _ = execute(argv, cwd, env or plain_environment(), None, timeout_s)
    return code, out


# -- diffs --------------------------------------------------------------------------------------

DIFF_MAX_BYTES = 200_000


def content_diff(run, path, old, new):
    """A unified diff of a file's content; None stands for no file."""
    if not run.diff:
        return []
    import difflib

    try:
        if len(old or b"") + len(new or b"") > DIFF_MAX_BYTES:
            raise ValueError
        before, after = (old or b"").decode(), (new or b"").decode()
        if "\0" in before or "\0" in after:
            raise ValueError
    except ValueError:
        return ["%s: %d -> %d bytes (binary or long)\n" % (path, len(old or b""), len(new or b""))]
    lines = difflib.unified_diff(
        before.splitlines(True),
        after.splitlines(True),
        path if old is not None else "/dev/null",
        path if new is not None else "/dev/null",
    )
    return ["".join(x if x.endswith("\n") else x + "\n\\ No newline at end of file\n" for x in lines)]


def state_diff(run, path, changes):
    return ["%s: %s\n" % (path, "; ".join(changes))] if run.diff and changes else []


def output_of(code, out, err, command):
    """The result's fields of a command, as Ansible names them."""
    return {
        "rc": code,
        "cmd": command,
        "stdout": out,
        "stderr": err,
        "stdout_lines": out.splitlines(),
        "stderr_lines": err.splitlines(),
    }
