"""`package`, `apt`, `dnf`, `package_facts`: software is installed, or is not, by the host's own tools."""

import os
import re

from rm_steps_base import StepFailed, asks, find_tool, must, state_diff, tool


class Debian:
    """dpkg and apt-get."""

    name = "apt"

    def __init__(self, args):
        self.program = tool("apt-get")
        self.args = args

    def version(self, name):
        """The installed version, None when it is not installed."""
        code, out = asks(["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}\n", name])
        for line in out.splitlines() if code == 0 else ():
            status, _, version = line.partition(" ")
            if status == "installed":
                return version
        return None

    def installed(self, wanted):
        name, _, version = wanted.partition("=")
        seen = self.version(name.partition("/")[0])
        if seen is None and self.provided(name):
            return True
        if seen is None or not version:
            return seen is not None
        return seen == version or (
            "*" in version and re.fullmatch(re.escape(version).replace(r"\*", ".*"), seen)
        )

    def provided(self, name):
        """A virtual package is installed when a package that provides it is."""
        if not find_tool("apt-cache") or self.known(name):
            return False
        code, out = asks([find_tool("apt-cache"), "showpkg", name])
        if code != 0 or "Reverse Provides:" not in out:
            return False
        givers = out.partition("Reverse Provides:")[2].split("\n")
        return any(self.version(line.split()[0]) for line in givers if line.split())

    def known(self, name):
        _, out = asks([tool("apt-cache"), "policy", name.partition("=")[0]])
        return "Candidate:" in out and "Candidate: (none)" not in out

    def outdated(self, name):
        _, out = asks([tool("apt-cache"), "policy", name.partition("=")[0]])
        fields = dict(line.strip().split(": ", 1) for line in out.splitlines() if ": " in line)
        return "Installed" in fields and fields["Installed"] != fields.get("Candidate")

    def refresh(self, run):
        """Update the lists unless they are young enough; whether they were."""
        import time

        stamp = 0.0
        for path in ("/var/lib/apt/periodic/update-success-stamp", "/var/lib/apt/lists"):
            if os.path.exists(path):
                stamp = max(stamp, os.stat(path).st_mtime)
        if stamp + (self.args.get("cache_valid_time") or 0) > time.time():
            return False
        if not run.check:
            must([self.program, "-qq", *self.locking(), "update"])
        return True

    def locking(self):
        return ["-o", "DPkg::Lock::Timeout=%d" % (self.args.get("lock_timeout") or 60)]

    def options(self):
        chosen = (self.args.get("dpkg_options") or "force-confdef,force-confold").split(",")
        found = ["-y", "-q", *self.locking()]
        for one in chosen:
            found += ["-o", "Dpkg::Options::=--" + one]
        if self.args.get("install_recommends") is not None:
            found += ["-o", "APT::Install-Recommends=" + ("yes" if self.args["install_recommends"] else "no")]
        for flag, option in (
            ("allow_unauthenticated", "--allow-unauthenticated"),
            ("allow_downgrade", "--allow-downgrades"),
            ("allow_change_held_packages", "--allow-change-held-packages"),
            ("only_upgrade", "--only-upgrade"),
            ("autoremove", "--auto-remove"),
            ("force", "--allow-downgrades"),
        ):
            found += [option] if self.args.get(flag) else []
        found += ["-t", self.args["default_release"]] if self.args.get("default_release") else []
        return found

    def install(self, names):
        must([self.program, *self.options(), "install", *names])

    def remove(self, names):
        purge = ["--purge"] if self.args.get("purge") else []
        must([self.program, *self.options(), *purge, "remove", *names])

    def upgrade(self, run, kind):
        """Bring all packages up to date; what changed, as the tool says."""
        verb = {"dist": "dist-upgrade", "full": "dist-upgrade"}.get(kind, "upgrade")
        extra = ["--with-new-pkgs"] if verb == "upgrade" else []
        out = must([self.program, "-s", *self.options(), *extra, verb])
        names = re.findall(r"^(?:Inst|Remv) (\S+)", out, re.MULTILINE)
        if names and not run.check:
            must([self.program, *self.options(), *extra, verb])
        return names

    def removable(self):
        out = must([self.program, "-s", *self.locking(), "autoremove"])
        return re.findall(r"^Remv (\S+)", out, re.MULTILINE)

    def facts(self):
        form = "${db:Status-Status}\t${Package}\t${Version}\t${Architecture}\t${Section}\t${source:Package}\n"
        found = {}
        for line in must([tool("dpkg-query"), "-W", "-f", form]).splitlines():
            status, name, version, arch, section, origin = (line + "\t" * 6).split("\t")[:6]
            if status == "installed":
                one = {"name": name, "version": version, "arch": arch, "category": section, "source": "apt"}
                found.setdefault(name, []).append(dict(one, origin=origin))
        return found


class RedHat:
    """rpm and dnf, or yum."""

    name = "dnf"

    def __init__(self, args):
        tool("rpm")
        self.program = tool("dnf", "dnf5", "yum")
        self.args = args

    def installed(self, name):
        return asks(["rpm", "-q", "--whatprovides", name])[0] == 0 or asks(["rpm", "-q", name])[0] == 0

    def outdated(self, name):
        return asks([self.program, "-q", *self.options(), "check-update", name])[0] == 100

    def options(self):
        found = []
        for flag, option in (
            ("enablerepo", "--enablerepo="),
            ("disablerepo", "--disablerepo="),
            ("exclude", "--exclude="),
        ):
            found += [option + one for one in self.args.get(flag) or ()]
        found += ["--nogpgcheck"] if self.args.get("disable_gpg_check") else []
        found += ["--setopt=install_weak_deps=False"] if self.args.get("install_weak_deps") is False else []
        found += ["--allowerasing"] if self.args.get("allowerasing") else []
        return found

    def refresh(self, run):
        if not run.check:
            must([self.program, "-q", *self.options(), "makecache"])
        return False

    def install(self, names):
        must([self.program, "-y", "-q", *self.options(), "install", *names])

    def remove(self, names):
        auto = ["--setopt=clean_requirements_on_remove=False"] if self.args.get("autoremove") is False else []
        must([self.program, "-y", "-q", *self.options(), *auto, "remove", *names])

    def upgrade(self, run, kind):
        code, out = asks([self.program, "-q", *self.options(), "check-update"])
        names = [line.split()[0] for line in out.splitlines() if line.split()] if code == 100 else []
        if names and not run.check:
            must([self.program, "-y", "-q", *self.options(), "upgrade"])
        return names

    def removable(self):
        code, out = asks([self.program, "-q", "list", "--autoremove"])
        return [line.split()[0] for line in out.splitlines()[1:] if line.split()] if code == 0 else []

    def facts(self):
        form = "%{NAME}\t%{VERSION}\t%{RELEASE}\t%{ARCH}\t%{EPOCHNUM}\n"
        found = {}
        for line in must([tool("rpm"), "-qa", "--qf", form]).splitlines():
            name, version, release, arch, epoch = (line + "\t" * 5).split("\t")[:5]
            one = {"name": name, "version": version, "release": release, "arch": arch, "source": "rpm"}
            found.setdefault(name, []).append(
                dict(one, epoch=int(epoch) or None if epoch.isdigit() else None)
            )
        return found


def manager(args):
    """The host's package tools; `use` (or the module's own name) asks for one of them."""
    wanted = args.get("use") or "auto"
    families = {"apt": Debian, "dnf": RedHat, "dnf5": RedHat, "yum": RedHat}
    if wanted not in ("auto", *families):
        raise StepFailed("There is no package manager '%s' here that rm can use (apt, dnf, yum)." % wanted)
    if wanted != "auto":
        if wanted == "apt" and not find_tool("dpkg-query"):
            raise StepFailed("This host has no apt; use 'package' for the host's own tool.")
        return families[wanted](args)
    return Debian(args) if find_tool("dpkg-query") and find_tool("apt-get") else RedHat(args)


def do_package(run, args):
    host = manager(args)
    names, state = list(args["name"] or ()), args["state"]
    result = {"changed": False, "packages": [], "diff": []}
    if args.get("update_cache"):
        result["cache_updated"] = host.refresh(run)
        if not names and not args.get("upgrade"):
            result["changed"] = result["cache_updated"]
    if args.get("deb"):
        return dict(result, **_deb(run, args, host))
    done = []
    if args.get("upgrade") not in (None, "no") or names == ["*"]:
        done += host.upgrade(run, args.get("upgrade") or "yes")
        names = [name for name in names if name != "*"]
    planned = run.planned["states"]
    if state == "absent":
        todo = [
            n
            for n in names
            if host.installed(n.partition("=")[0]) and planned.get("package " + n) != "absent"
        ]
    else:
        todo = [n for n in names if not host.installed(n) or (state == "latest" and host.outdated(n))]
        if args.get("only_upgrade"):
            todo = [n for n in todo if host.installed(n.partition("=")[0])]
        todo = [n for n in todo if planned.get("package " + n) != state]
    if todo and run.check and host.name == "apt" and state != "absent":
        unknown = [n for n in todo if not host.known(n) and not os.path.exists(n)]
        if unknown and not args.get("update_cache"):
            raise StepFailed("No package matching '%s' is available." % unknown[0])
    if run.check:
        planned.update({"package " + name: state for name in todo})
    elif todo:
        (host.remove if state == "absent" else host.install)(todo)
    if args.get("autoremove") and not names:
        gone = host.removable()
        if gone and not run.check:
            must([host.program, "-y", "-q", "autoremove"])
        done += gone
    done += todo
    result.update(packages=done, changed=result["changed"] or bool(done))
    result["diff"] = state_diff(run, "packages " + state, done)
    return result


def _deb(run, args, host):
    """A package file: of this host, or fetched first."""
    path = args["deb"]
    if "://" in path:
        from rm_steps_web import download

        path = download(path, {})
    code, out = asks([tool("dpkg-deb"), "-f", path, "Package", "Version"])
    if code != 0:
        raise StepFailed("%s is no Debian package." % args["deb"])
    fields = dict(line.split(": ", 1) for line in out.splitlines() if ": " in line)
    if host.version(fields["Package"]) == fields["Version"]:
        return {"changed": False}
    if not run.check:
        host.install([os.path.abspath(path)])
    done = ["%s %s" % (fields["Package"], fields["Version"])]
    return {"changed": True, "packages": done, "diff": state_diff(run, "package file", done)}


def do_package_facts(run, args):
    found = {}
    wanted = [one for one in args["manager"] if one != "auto"]
    for name, family, needs in (("apt", Debian, "dpkg-query"), ("rpm", RedHat, "rpm")):
        if (not wanted or name in wanted) and find_tool(needs):
            found.update(family.facts(None))
            if not wanted and found:
                break
    if not found:
        raise StepFailed("This host has none of the package managers asked for (apt, rpm).")
    return {"changed": False, "ansible_facts": {"packages": found}}
