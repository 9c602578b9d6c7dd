"""`dnf`, `yum`, and `package` on their hosts: by rpm and dnf, or yum."""

import re

from rm_steps_base import StepFailed, asks, execute, must, plain_environment, state_diff, tool

# option of the module -> option of the program; a list is given as many times
FLAGS = {
    "disable_gpg_check": "--nogpgcheck",
    "allowerasing": "--allowerasing",
    "skip_broken": "--skip-broken",
    "nobest": "--nobest",
    "cacheonly": "--cacheonly",
    "security": "--security",
    "bugfix": "--bugfix",
    "download_only": "--downloadonly",
}
VALUES = {
    "enablerepo": "--enablerepo=",
    "disablerepo": "--disablerepo=",
    "exclude": "--exclude=",
    "disable_excludes": "--disableexcludes=",
    "enable_plugin": "--enableplugin=",
    "disable_plugin": "--disableplugin=",
    "installroot": "--installroot=",
    "releasever": "--releasever=",
    "conf_file": "--config=",
    "download_dir": "--downloaddir=",
}
SECTION = re.compile(r"(Install|Upgrad|Downgrad|Reinstall|Remov)ing\b.*:$")
ROW = re.compile(r" (\S+)\s*(?:\n +)?(\S+) +(\S+) ")


class RedHat:
    """One step's request, and the host's tools."""

    def __init__(self, args):
        tool("rpm")
        self.program = tool("dnf", "dnf5", "yum")
        self.args = args

    def options(self):
        found = [option for flag, option in FLAGS.items() if self.args.get(flag)]
        for name, option in VALUES.items():
            value = self.args.get(name)
            found += [option + one for one in (value if isinstance(value, list) else [value]) if one]
        # `validate_certs` is about packages by address, which Ansible fetches itself
        addresses = any(name.startswith("https://") for name in self.args.get("name") or ())
        checks = self.args.get("sslverify", True) and (self.args.get("validate_certs", True) or not addresses)
        found += [] if checks else ["--setopt=sslverify=False"]
        found += ["--setopt=install_weak_deps=False"] if self.args.get("install_weak_deps") is False else []
        return found

    def there(self, names):
        """Are all of these plain names installed? Asks rpm only, which is quick."""
        root = ["--root", self.args["installroot"]] if self.args.get("installroot") else []
        plain = all(re.fullmatch(r"[\w.+:-]+", name) for name in names)
        return plain and asks(["rpm", *root, "-q", "--whatprovides", *names])[0] == 0

    def plan(self, verb, names, flags=()):
        """What the program would do: [(what, "name-version.arch")]."""
        argv = [self.program, "--assumeno", *self.options(), *flags, verb, *names]
        code, out, err = execute(argv, env=plain_environment())
        rows, what = [], ""
        lines = out.split("\n")
        for number, line in enumerate(lines):
            section = SECTION.match(line)
            if section:
                what = {"Remov": "Removed"}.get(section.group(1), section.group(1) + "ed")
            elif not line.startswith(" "):
                what = what if line.startswith("   ") else ""
            elif what:
                row = ROW.match(line + "\n" + lines[number + 1] if len(line.split()) < 3 else line + " ")
                if row and line[1] != " ":
                    rows.append((what, "%s-%s.%s" % (row.group(1), row.group(3), row.group(2))))
        if code != 0 and not rows:
            said = "; ".join(one for one in err.splitlines() if one.startswith("Error")) or err.strip()
            raise StepFailed("%s %s: %s" % (self.program, verb, said[-2000:] or out[-2000:]), rc=code)
        return rows

    def carry_out(self, run, verb, names, flags=()):
        rows = self.plan(verb, names, flags)
        downgraded = [what for what, _ in rows if what == "Downgraded"]
        if downgraded and not self.args.get("allow_downgrade") and verb == "install":
            kept = [name for name in names if not self.downgrades(name, flags)]
            return self.carry_out(run, verb, kept, flags) if kept else []
        if rows and not run.check:
            must([self.program, "-y", "-q", *self.options(), *flags, verb, *names])
        return rows

    def downgrades(self, name, flags):
        return any(what == "Downgraded" for what, _ in self.plan("install", [name], flags))

    def fit(self, run, names):
        """The transactions that bring the named packages into the state asked for."""
        state, only = self.args["state"], self.args.get("only_upgrade")
        if state == "absent":
            auto = [] if self.args.get("autoremove") else ["--setopt=clean_requirements_on_remove=False"]
            return self.carry_out(run, "remove", names, auto)
        if state == "present" and not only:
            return [] if self.there(names) else self.carry_out(run, "install", names)
        old = [name for name in names if self.there([name])]
        rows = self.carry_out(run, "upgrade", old) if old else []
        new = [name for name in names if name not in old]
        return rows + (self.carry_out(run, "install", new) if new and not only else [])

    def apply(self, run):
        names, done = [name.strip() for name in self.args.get("name") or ()], []
        if self.args.get("update_cache") and not run.check:
            must([self.program, "-q", *self.options(), "makecache"])
        if names == ["*"] and self.args["state"] == "latest":
            done = self.carry_out(run, "upgrade", [])
        elif names:
            planned = run.planned["states"]
            done = self.fit(run, [n for n in names if planned.get("package " + n) != self.args["state"]])
            if run.check:
                planned.update({"package " + name: self.args["state"] for name in names})
        elif self.args.get("autoremove"):
            done = self.carry_out(run, "autoremove", [])
        fetched = self.args.get("download_only")
        said = [
            "%s: %s" % ("Downloaded" if fetched and what == "Installed" else what, one) for what, one in done
        ]
        result = {"changed": bool(done), "results": said, "rc": 0, "msg": ""}
        return dict(result, diff=state_diff(run, "packages " + self.args["state"], said))


def facts():
    form = "%{NAME}\t%{VERSION}\t%{RELEASE}\t%{ARCH}\t%{EPOCHNUM}\n"
    found = {}
    for line in must([tool("rpm"), "-qa", "--qf", form]).splitlines():
        name, version, release, arch, epoch = (line + "\t" * 5).split("\t")[:5]
        one = {"name": name, "version": version, "release": release, "arch": arch, "source": "rpm"}
        found.setdefault(name, []).append(dict(one, epoch=int(epoch) or None if epoch.isdigit() else None))
    return found
