"""`apt_repository`, `deb822_repository`: where apt gets packages from."""

import glob
import json
import os
import re
import tempfile
import time

from rm_steps_base import Run, StepFailed, execute, find_tool, must, plain_environment, tool
from rm_steps_write import put_content, remove_file

SOURCES, PARTS = "/etc/apt/sources.list", "/etc/apt/sources.list.d"
KEYRINGS = "/etc/apt/keyrings"
KEY_PLACES = (KEYRINGS, "/etc/apt/trusted.gpg.d", "/usr/share/keyrings")
PPA_SITE = "https://ppa.launchpadcontent.net"
PPA_ABOUT = "https://api.launchpad.net/1.0/~%s/+archive/%s"
KEYSERVER = "hkp://keyserver.ubuntu.com:80"


class Line:
    """One line of a file of sources."""

    def __init__(self, text):
        text = text.strip()
        self.enabled = not text.startswith("#")
        text = text if self.enabled else text[1:]
        at = text.find("#")
        self.comment = text[at + 1 :].strip() if at > 0 else ""
        self.source = (text[:at] if at > 0 else text).strip()
        words = self.source.split()
        self.valid = bool(words) and words[0] in ("deb", "deb-src")
        if self.valid:
            self.source = " ".join(words)

    def text(self):
        comment = " # " + self.comment if self.comment else ""
        return "%s%s%s\n" % ("" if self.enabled else "# ", self.source, comment)


class Sources:
    """All files of sources, as they are or would be by now."""

    def __init__(self, run):
        self.run, self.files, self.old = run, {}, {}
        planned = [path for path, kind in run.planned["paths"].items() if kind == "file"]
        for path in sorted({SOURCES, *glob.glob(PARTS + "/*.list"), *planned}):
            if path == SOURCES or (os.path.dirname(path) == PARTS and path.endswith(".list")):
                data = run.read(path)
                if data is not None:
                    self.old[path] = data
                    self.files[path] = [Line(one) for one in data.decode("utf-8", "replace").splitlines()]
        self.before = self.texts()

    def texts(self):
        return {path: "".join(one.text() for one in lines) for path, lines in self.files.items() if lines}

    def add(self, source, path):
        found = [one for lines in self.files.values() for one in lines if one.valid and one.source == source]
        for one in found:
            one.enabled = True
        if not found:
            self.files.setdefault(path, []).append(Line(source))

    def remove(self, source):
        for path, lines in self.files.items():
            kept = [one for one in lines if not (one.valid and one.enabled and one.source == source)]
            self.files[path] = kept

    def save(self, args):
        """Write what differs; the diffs."""
        after, diffs = self.texts(), []
        for path in sorted({*self.before, *after}):
            if self.before.get(path) == after.get(path):
                continue
            real = os.path.realpath(path)
            if path not in after:
                diffs += remove_file(self.run, path)
                continue
            new = path not in self.before
            mode = {"mode": args["mode"]} if new and args["mode"] is not None else {}
            diffs += put_content(self.run, real, after[path].encode(), mode)["diff"]
        return diffs

    def restore(self):
        for path in {*self.texts(), *self.old}:
            if path not in self.old:
                remove_file(self.run, path)
            elif self.run.read(path) != self.old[path]:
                put_content(self.run, os.path.realpath(path), self.old[path], {})


def _codename():
    with open("/etc/os-release", encoding="utf-8") as file:
        match = re.search(r"^(?:UBUNTU_CODENAME|VERSION_CODENAME)=\"?([\w.-]+)", file.read(), re.M)
    if match is None:
        raise StepFailed("This host does not say its release's codename; give 'codename'.")
    return match.group(1)


def _ppa(args):
    """(source, owner, name, codename) of ppa:OWNER/NAME."""
    owner, _, name = args["repo"][4:].partition("/")
    codename = args["codename"] or _codename()
    name = name or "ppa"
    return "deb %s/%s/%s/ubuntu %s main" % (PPA_SITE, owner, name, codename), owner, name, codename


def _path_for(args, text):
    """The file that a new source goes to: the one asked for, else one that its address names."""
    if args["filename"] is not None:
        name = args["filename"]
    else:
        text = re.sub(r"\w+://", "", re.sub(r"\[[^\]]+\]", "", text))
        first = next(word for word in text.split() if word not in ("deb", "deb-src"))
        name = "_".join(re.sub("[^a-zA-Z0-9]", " ", first.partition("@")[2] or first).split())
    name += ".list"
    return name if "/" in name else os.path.join(PARTS, name)


def _trust(owner, name, source):
    """The key of a PPA, unless the host has it."""
    from rm_steps_web import content_of

    headers = {"headers": {"Accept": "application/json"}}
    mark = json.loads(content_of(PPA_ABOUT % (owner, name), headers).decode())["signing_key_fingerprint"]
    gpg = tool("gpg")
    rings = ["/etc/apt/trusted.gpg", *(path for place in KEY_PLACES for path in glob.glob(place + "/*"))]
    for ring in rings:
        if os.path.isfile(ring) and mark in execute([gpg, "--show-keys", "--with-colons", ring])[1]:
            return
    if find_tool("apt-key"):
        keyserver = ["--no-tty", "--keyserver", KEYSERVER]
        must([tool("apt-key"), "adv", "--recv-keys", *keyserver, mark])
        return
    place = next((one for one in KEY_PLACES if os.path.isdir(one)), None)
    if place is None:
        raise StepFailed("There is none of the directories %s." % ", ".join(KEY_PLACES))
    target = "%s/%s-%s-%s.gpg" % (place, os.path.basename(source).replace(" ", "-"), owner, name)
    with tempfile.TemporaryDirectory(prefix="rm-gnupg-") as home:
        env, key = plain_environment(GNUPGHOME=home), os.path.join(home, "key")
        must([gpg, "--no-tty", "--batch", "--keyserver", KEYSERVER, "--recv-keys", mark], env=env)
        must([gpg, "--no-tty", "--batch", "--output", key, "--export", mark], env=env)
        with open(key, "rb") as file:
            put_content(Run(False, False, {}), target, file.read(), {"mode": 0o644})
        if find_tool("gpgconf"):
            execute([tool("gpgconf"), "--kill", "all"], env=env)


def _fetch_lists(args):
    said = ""
    for number in range(args["update_cache_retries"]):
        options = ["-q", "-o", "APT::Update::Error-Mode=any", "update"]
        code, out, err = execute([tool("apt-get"), *options], env=plain_environment())
        if code == 0:
            return
        said = (err or out).strip()[-2000:]
        if number + 1 < args["update_cache_retries"]:
            time.sleep(min(2**number, args["update_cache_retry_max_delay"]))
    tries = args["update_cache_retries"]
    raise StepFailed("Failed to update apt cache after %d retries: %s" % (tries, said or "unknown reason"))


def do_apt_repository(run, args):
    if not os.path.isdir(os.path.dirname(SOURCES)):
        raise StepFailed("This host has no apt.")
    sources, repo, key = Sources(run), args["repo"], None
    if repo.startswith("ppa:"):
        source, owner, name, codename = _ppa(args)
        path, key = _path_for(args, "%s_%s" % (repo, codename)), (owner, name, source)
        held = [one for lines in sources.files.values() for one in lines if one.valid and one.enabled]
        if any(one.source == source for one in held):
            key = None
    else:
        line = Line(repo)
        if not line.valid:
            raise StepFailed("Invalid repository string: %s" % repo)
        source = line.source
        path = _path_for(args, source)
    if args["state"] == "present":
        sources.add(source, path)
    else:
        sources.remove(source)
    after = sources.texts()
    result = {
        "changed": after != sources.before,
        "repo": args["repo"],
        "state": args["state"],
        "sources_added": sorted(after.keys() - sources.before.keys()),
        "sources_removed": sorted(sources.before.keys() - after.keys()),
        "diff": [],
    }
    if result["changed"]:
        if key and args["state"] == "present" and not run.check:
            _trust(*key)
        result["diff"] = sources.save(args)
        if args["update_cache"] and run.check:
            run.is_new_state("apt lists", "updated")
        elif args["update_cache"]:
            try:
                _fetch_lists(args)
            except StepFailed:
                sources.restore()
                raise
    return result


# -- deb822_repository --------------------------------------------------------------------------


def _field(name):
    return {"name": "X-Repolib-Name", "uris": "URIs"}.get(name) or name.replace("_", "-").title()


def _signed_by(run, value, slug):
    """(file of the key, what the field says, changes): a URL's key is put into a file of its own."""
    if run.kind(value) == "file":
        return value, value, [], []
    if not re.match(r"[a-z][a-z0-9+.-]*://", value):
        return None, value, [], []
    from rm_steps_web import content_of

    data = content_of(value, {})
    ending = "asc" if b"-----BEGIN PGP PUBLIC KEY BLOCK-----" in data else "gpg"
    path, changes = "%s/%s.%s" % (KEYRINGS, slug, ending), []
    if not run.is_directory(KEYRINGS):
        from rm_steps_file import do_file

        do_file(run, {"path": KEYRINGS, "state": "directory", "mode": 0o755})
    part = put_content(run, path, data, {"mode": 0o644})
    if part["changed"]:
        changes.append(path)
    return path, path, changes, part["diff"]


def do_deb822_repository(run, args):
    fields = dict(args["fields"])
    slug = re.sub(r"[^a-z0-9-]+", "", re.sub(r"[_\s]+", "-", fields["name"].lower()))
    dest = "%s/%s.sources" % (PARTS, slug)
    result = {"changed": False, "dest": dest, "repo": None, "key_filename": None, "diff": []}
    if args["state"] == "absent":
        result["key_filename"] = "%s/%s.gpg" % (KEYRINGS, slug)
        for path in (dest, "%s/%s.asc" % (KEYRINGS, slug), result["key_filename"]):
            if run.kind(path) != "absent":
                result["changed"] = True
                result["diff"] += remove_file(run, path)
        return result
    if not os.path.isdir(PARTS):
        raise StepFailed("This host has no %s." % PARTS)
    changes = []
    if "signed_by" in fields:
        found = _signed_by(run, fields["signed_by"], slug)
        result["key_filename"], fields["signed_by"], changes, result["diff"] = found
    text = ""
    for name, value in sorted(fields.items()):
        if "\n" in value:
            lines = [line.strip() or "." for line in value.strip().splitlines()]
            value = "\n" + "\n".join("    " + line for line in lines)
        text += "%s:%s%s\n" % (_field(name), "" if value.startswith("\n") else " ", value)
    part = put_content(run, dest, text.encode(), {"mode": args["mode"]})
    result.update(changed=bool(changes) or part["changed"], repo=text, diff=result["diff"] + part["diff"])
    return result
