"""`apt`, and `package` on Debian and its kin: by dpkg, apt-cache and apt-get."""

import contextlib
import fnmatch
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
from rm_steps_dpkg import packages

STAMP = "/var/lib/apt/periodic/update-success-stamp"
LISTS = "/var/lib/apt/lists"
STATES = "/var/lib/apt/extended_states"  # which packages came only for the sake of others
RETRIES, DELAY_MAX_S = 5, 12  # of `update_cache`


class Package:
    """What the host has and could have of one package, besides what it is wanted to be."""

    def __init__(self, spec):
        self.spec = spec
        self.name, self.compare, self.version = [*re.split(r"(>?=)", spec, maxsplit=1), "", ""][:3]
        self.installed = ""  # version
        self.leftovers = False  # removed, and its configuration still there
        self.candidate = ""
        self.versions = []  # that could be installed, best first
        self.known = False
        self.stand_in = ""  # an installed package that provides this virtual one

    def matches(self, version):
        if not version:
            return False
        if self.compare == ">=":
            return asks([tool("dpkg"), "--compare-versions", version, "ge", self.version])[0] == 0
        return not self.compare or fnmatch.fnmatchcase(version, self.version)

    def best(self):
        """The version that an installation would bring, "" for none; virtual packages have none."""
        if self.compare == "=":
            return next((version for version in self.versions if self.matches(version)), "")
        return self.candidate if self.matches(self.candidate) else ""

    def to_install(self, latest, only_upgrade):
        """What to ask apt-get for; "" when it is as it should be."""
        best, fits = self.best(), self.matches(self.installed) or (self.stand_in and not self.compare)
        if only_upgrade and not self.installed:
            return ""
        if not fits and not best and (self.compare or not self.virtual()):
            raise StepFailed("No package matching '%s' is available." % self.spec)
        if not fits:
            return "%s=%s" % (self.name, best) if best and self.compare else self.name
        wanted = latest or (self.compare == "=" and self.version != self.installed)
        if wanted and best and best != self.installed and not self.stand_in:
            return "%s=%s" % (self.name, best)
        return ""

    def is_plainly_there(self):
        """Installed, and no other version could be meant."""
        return bool(self.installed) and (not self.compare or self.version == self.installed)

    def virtual(self):
        return self.known and not self.candidate


class Debian:
    """One step's request, and the host's tools."""

    name = "apt"

    def __init__(self, args):
        self.program = tool("apt-get")
        self.args = args
        self.said = {"stdout": "", "stderr": ""}
        # in check mode: name -> version that would be there; "": only its configuration, None: nothing
        self.planned = {}
        self.unsure = []  # what check mode cannot know: packages of lists that are yet to be fetched

    # -- looking ------------------------------------------------------------------------------

    def look(self, specs, available=True):
        """{spec: Package} of what the host says, in two questions however many there are; the slow one, for
        what is `available`, may be left out."""
        found = {spec: Package(spec) for spec in specs}
        by_name = {}
        for one in found.values():
            by_name.setdefault(one.name, []).append(one)
        for status, version, *names in packages(by_name):
            for one in by_name.get(
                names[0], by_name.get(names[1], by_name.get(names[0] + ":" + names[2], ()))
            ):
                one.known = True
                one.installed = version if status == "installed" else one.installed
                one.leftovers = one.leftovers or status == "config-files"
        for one in found.values():
            if one.name in self.planned:
                version = self.planned[one.name]
                one.installed, one.leftovers = version or "", version == ""
        if not available:
            return found
        current, listing = (), False
        for line in must(
            [tool("apt-cache"), *self.release("-o", "APT::Default-Release="), "policy", *by_name]
        ).splitlines():
            header = re.fullmatch(r"(\S+):", line)
            if header:
                name = header.group(1)
                current = by_name.get(name) or [
                    one for one in found.values() if one.name.partition(":")[0] == name
                ]
                listing = False
            for one in current:
                one.known = True
                words = line.replace("***", " ").split()
                if words[:1] == ["Candidate:"]:
                    one.candidate = "" if words[1] == "(none)" else words[1]
                elif words[:2] == ["Version", "table:"]:
                    listing = True
                elif listing and re.match(r" (\*\*\*|   ) \S", line):
                    one.versions.append(words[0])
        for one in found.values():
            if one.virtual() and not one.installed:
                one.stand_in = self.stand_in(one.name)
        return found

    def release(self, *option):
        """The chosen release as an option, if there is one."""
        chosen = self.args.get("default_release")
        return [option[0], "".join(option[1:]) + chosen] if chosen else []

    def stand_in(self, name):
        """The installed package that provides a virtual one, "" for none."""
        givers = asks([tool("apt-cache"), "showpkg", name])[1].partition("Reverse Provides:")[2].split("\n")
        names = [line.split()[0] for line in givers if line.split()]
        if not names:
            return ""
        coming = [name for name in names if self.planned.get(name)]
        if coming:
            return coming[0]
        names = [name for name in names if name not in self.planned]
        form = "${db:Status-Status} ${Package}\n"
        for line in asks([tool("dpkg-query"), "-W", "-f", form, *names])[1].splitlines():
            if line.startswith("installed "):
                return line.split()[1]
        return ""

    def lists_to_come(self, run):
        """Check mode fetches no lists, so a package may be known by the time of the real run."""
        return run.check and (self.args.get("update_cache") or "apt lists" in run.planned["states"])

    def spelled_out(self, run, specs):
        """The specifications with shell patterns replaced by the packages' names that match."""
        found = []
        for spec in specs:
            name = re.split(r">?=", spec, maxsplit=1)[0]
            if not set(name) & set("*?[]!"):
                found.append(spec)
                continue
            names = fnmatch.filter(sorted(asks([tool("apt-cache"), "pkgnames"])[1].split()), name)
            if not names and not self.lists_to_come(run):
                raise StepFailed("No packages matching '%s' are available." % name)
            found += names or [spec]
        return found

    # -- changing -----------------------------------------------------------------------------

    def options(self, *flags):
        found = ["-y", "-q", "-o", "DPkg::Lock::Timeout=%d" % (self.args.get("lock_timeout") or 60)]
        for one in (self.args.get("dpkg_options") or "force-confdef,force-confold").split(","):
            found += ["-o", "Dpkg::Options::=--" + one]
        if self.args.get("install_recommends") is not None:
            found += ["-o", "APT::Install-Recommends=" + ("yes" if self.args["install_recommends"] else "no")]
        downgrade, held = "--allow-downgrades", "--allow-change-held-packages"
        for flag, options in (
            ("allow_unauthenticated", ["--allow-unauthenticated"]),
            ("allow_downgrade", [downgrade]),
            ("allow_change_held_packages", [held]),
            ("only_upgrade", ["--only-upgrade"]),
            ("autoremove", ["--auto-remove"]),
            ("fail_on_autoremove", ["--no-remove"]),
            ("fixed", ["--fix-broken"]),
            ("force", [downgrade, held, "--allow-remove-essential", "--allow-unauthenticated"]),
        ):
            wanted = flag in flags if flag == "fixed" else self.args.get(flag)
            found += options if wanted else []
        return found + self.release("-t", "")

    def run(self, argv):
        """One of the tools, which has to succeed; what it says becomes part of the result."""
        code, out, err = execute([self.program, *argv], env=plain_environment())
        self.said["stdout"] += out
        self.said["stderr"] += err
        if code != 0:
            said = (err or out).strip()[-2000:]
            raise StepFailed("apt-get failed (%d): %s" % (code, said), rc=code, **self.said)
        return out

    def refresh(self, run):
        """Update the lists unless they are young enough; whether they have been."""
        import time

        before = _updated_at()
        valid_s = self.args.get("cache_valid_time") or 0
        if before + valid_s >= time.time() or (valid_s and not run.is_new_state("apt lists", "updated")):
            return False
        if run.check:
            run.is_new_state("apt lists", "updated")
            return True
        tries = self.args.get("update_cache_retries") or RETRIES
        slowest = self.args.get("update_cache_retry_max_delay") or DELAY_MAX_S
        for number in range(tries):
            argv = ["-q", "-o", "DPkg::Lock::Timeout=%d" % (self.args.get("lock_timeout") or 60)]
            # without this, apt-get calls it a success when an archive does not answer
            argv += ["-o", "APT::Update::Error-Mode=any", "update"]
            code, out, err = execute([self.program, *argv], env=plain_environment())
            if code == 0:
                return _updated_at() != before
            if number + 1 < tries:
                time.sleep(min(2**number, slowest))
        said = (err or out).strip()[-2000:]
        raise StepFailed("apt-get cannot update its lists after %d tries: %s" % (tries, said), rc=code)

    def upgrade(self, run, kind):
        """Bring all packages up to date; the names of those that are not."""
        verb = ["upgrade", "--with-new-pkgs"] if kind in ("yes", "safe") else ["dist-upgrade"]
        out = must([self.program, "-s", *self.options(), *verb])
        names = re.findall(r"^(?:Inst|Remv) (\S+)", out, re.MULTILINE)
        self.unsure += ["newer packages"] if self.lists_to_come(run) else []
        if names and not run.check:
            self.run([*self.options(), *verb])
        else:
            self.said["stdout"] += out
        return names

    def clean_up(self, run, verb, mark):
        """`autoremove` or `autoclean`; the packages concerned."""
        purge = ["--purge"] if self.args.get("purge") else []
        argv = [*self.options(), *purge, verb]
        names = re.findall(r"^%s (\S+)" % mark, must([self.program, "-s", *argv]), re.MULTILINE)
        if names and not run.check:
            self.run(argv)
        return names

    def files(self, run):
        """Package files of this host, or fetched first, and what they depend on."""
        paths, fetched = [], []
        try:
            for path in self.args["deb"].split(","):
                if "://" in path:
                    from rm_steps_web import download

                    path = download(path, {}, ".deb")  # other files apt-get refuses
                    fetched.append(path)
                paths.append(path)
            return self.from_files(run, paths)
        finally:
            for path in fetched:
                os.unlink(path)

    def from_files(self, run, given):
        paths, done = [], []
        for path in given:
            path = os.path.abspath(expanded(path))
            if run.check and not os.path.exists(path):
                self.unsure.append(path)
                continue
            code, out = asks([tool("dpkg-deb"), "-f", path, "Package", "Version", "Architecture"])
            if code != 0:
                raise StepFailed("%s is not a Debian package, or cannot be read." % path)
            fields = dict(line.split(": ", 1) for line in out.splitlines() if ": " in line)
            seen = self.look([fields["Package"]])[fields["Package"]].installed
            if seen == fields["Version"]:
                continue
            older = seen and asks([tool("dpkg"), "--compare-versions", seen, "gt", fields["Version"]])[0] == 0
            if older and not (self.args.get("allow_downgrade") or self.args.get("force")):
                raise StepFailed("A later version of %s is installed: %s." % (fields["Package"], seen))
            paths.append(path)
            if run.check:
                self.planned[fields["Package"]] = fields["Version"]
            done.append("%s %s" % (fields["Package"], fields["Version"]))
        if paths and not run.check:
            self.run([*self.options(), "install", *paths])
        return done

    def install(self, run, specs):
        state = self.args["state"]
        if state == "build-dep":
            names = re.findall(
                r"^Inst (\S+)", must([self.program, "-s", *self.options(), "build-dep", *specs]), re.M
            )
            if names and not run.check:
                self.run([*self.options(), "build-dep", *specs])
            return names
        found = self.look(specs, available=False)
        if state != "present" or not all(one.is_plainly_there() for one in found.values()):
            found = self.look(specs)
        todo = []
        for spec in specs:
            seen = found[spec]
            if self.lists_to_come(run) and not (seen.candidate or seen.installed or seen.stand_in):
                self.unsure.append(spec)
                continue
            one = found[spec].to_install(state == "latest", self.args.get("only_upgrade"))
            todo += [one] if one else []
            if one and run.check:
                self.expect(found[spec], one.partition("=")[2] or found[spec].candidate)
        if todo and not run.check:
            self.run([*self.options("fixed" if state == "fixed" else ""), "install", *todo])
        if specs and not run.check:
            after = self.look(specs, available=False) if todo else found
            self.mark_manual([one.name for one in after.values() if one.installed])
        return todo

    def expect(self, package, version):
        """Check mode: from now on this version is taken to be installed."""
        allowed = not package.installed or self.args.get("allow_downgrade") or self.args.get("force")
        newer = [tool("dpkg"), "--compare-versions", package.installed, "gt", version]
        if not allowed and asks(newer)[0] == 0:
            raise StepFailed("%s is installed in a later version, %s." % (package.name, package.installed))
        self.planned[package.name] = version

    def mark_manual(self, names):
        """A package that is asked for by name is to be kept, though it came as a dependency of another."""
        with contextlib.suppress(OSError), open(STATES, encoding="utf-8") as file:
            auto = re.findall(r"^Package: (\S+)\n(?:.+\n)*?Auto-Installed: 1$", file.read(), re.MULTILINE)
            chosen = [name for name in names if name.partition(":")[0] in auto]
            if chosen and find_tool("apt-mark"):
                must([tool("apt-mark"), "manual", *chosen])

    def remove(self, run, specs):
        found, purge = self.look(specs, available=self.lists_to_come(run)), self.args.get("purge")
        todo = []
        for spec in specs:
            one = found[spec]
            if not one.known and self.lists_to_come(run):
                self.unsure.append(spec)
                continue
            there = one.matches(one.installed) or (purge and one.leftovers)
            if there:
                todo.append(one.name)
                if run.check:
                    self.planned[one.name] = None if purge else ""
        if todo and not run.check:
            self.run([*self.options(), *(["--purge"] if purge else []), "remove", *todo])
        return todo

    # -- the step -----------------------------------------------------------------------------

    def apply(self, run):
        args, done = self.args, []
        if run.check:
            self.planned = run.planned["states"].setdefault("apt packages", {})
        specs = [name.strip() for name in args.get("name") or ()]
        upgrade = args.get("upgrade") or "no"
        if "*" in specs:
            specs.remove("*")
            if args["state"] == "latest" and specs:
                raise StepFailed("'*' means all packages, and leaves no others to name.")
            upgrade = "yes" if args["state"] == "latest" else upgrade
        result = {"changed": False, "cache_updated": False}
        if args.get("clean"):
            result["changed"] = not specs and upgrade == "no" and not args.get("deb")
            if not run.check:
                self.run(["clean"])
        if args.get("update_cache"):
            result["cache_updated"] = self.refresh(run)
            alone = not specs and upgrade == "no" and not args.get("deb")
            result["changed"] = result["changed"] or (alone and result["cache_updated"])
        result["cache_update_time"] = int(_updated_at())
        if upgrade != "no":
            done += self.upgrade(run, upgrade)
        if args.get("deb"):
            done += self.files(run)
        if not specs:
            done += self.clean_up(run, "autoclean", "Del") if args.get("autoclean") else []
            done += self.clean_up(run, "autoremove", "Remv") if args.get("autoremove") else []
        else:
            specs = self.spelled_out(run, specs)
            done += self.remove(run, specs) if args["state"] == "absent" else self.install(run, specs)
        result.update(changed=result["changed"] or bool(done), **self.said)
        result["stdout_lines"] = self.said["stdout"].splitlines()
        result["stderr_lines"] = self.said["stderr"].splitlines()
        if self.unsure:
            said = "might run: apt-get, for %s" % ", ".join(self.unsure)
            result.update(might_run=True, skipped=not result["changed"], msg=said)
        return dict(result, diff=state_diff(run, "packages " + args["state"], done))


def _updated_at():
    """When the lists were fetched, seconds since the epoch; 0 for never."""
    for path in (STAMP, LISTS):
        if os.path.exists(path):
            return os.stat(path).st_mtime
    return 0.0


def facts():
    form = "${db:Status-Status}\t${Package}\t${Version}\t${Architecture}\t${Section}\n"
    found = {}
    for line in must([tool("dpkg-query"), "-W", "-f", form]).splitlines():
        status, name, version, arch, section = (line + "\t" * 5).split("\t")[:5]
        if status == "installed":
            one = {"name": name, "version": version, "arch": arch, "category": section, "source": "apt"}
            found.setdefault(name, []).append(dict(one, origin=""))
    return found
