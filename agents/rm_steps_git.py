"""`git`: a directory of this host is a checkout of one version of a repository."""

import os
import re
import shutil

from rm_steps_aside import refuse_led_away
from rm_steps_base import (
    StepFailed,
    absolute,
    asks,
    execute,
    expanded,
    must,
    plain_environment,
    state_diff,
    tool,
)


class Checkout:
    def __init__(self, args):
        self.args = args
        self.dest = absolute(args["dest"]) if args["dest"] else None
        self.git = args["executable"] or tool("git")
        self.environment = plain_environment(GIT_TERMINAL_PROMPT="0")
        words = [args["ssh_opts"]] if args["ssh_opts"] else []
        if args["key_file"]:
            words += ["-i", expanded(args["key_file"]), "-o", "IdentitiesOnly=yes"]
        if args["accept_hostkey"]:
            words += ["-o", "StrictHostKeyChecking=no"]
        elif args["accept_newhostkey"]:
            words += ["-o", "StrictHostKeyChecking=accept-new"]
        self.environment["GIT_SSH_COMMAND"] = " ".join(["ssh", "-o", "BatchMode=yes", *words])

    def run(self, *words, where=None):
        return must([self.git, *words], cwd=where or self.dest, env=self.environment).strip()

    def look(self, *words):
        return asks([self.git, *words], cwd=self.dest, env=self.environment)

    def folder(self):
        """The repository's own directory: DEST/.git, DEST itself when bare."""
        return self.dest if self.args["bare"] else os.path.join(self.dest, ".git")

    def there(self):
        return self.dest is not None and os.path.exists(os.path.join(self.folder(), "config"))

    def head(self):
        code, out = self.look("rev-parse", "HEAD")
        return out.strip() if code == 0 else None

    def remote_references(self):
        """{reference: commit} of the repository as it is now; annotated tags by their commits."""
        code, out, err = execute([self.git, "ls-remote", self.args["repo"]], env=self.environment, cwd="/")
        if code != 0:
            said = (err.strip().splitlines() or ["exit code %d" % code])[-1]
            raise StepFailed("The repository cannot be read: %s" % said)
        found = {}
        for line in out.splitlines():
            commit, _, name = line.partition("\t")
            found[name.replace("^{}", "")] = commit
        return found

    def wanted(self, references):
        """(kind, commit): what `version` is over there: head, branch, tag, or a commit by its name."""
        version = self.args["version"]
        if version == "HEAD":
            return "head", references.get("HEAD")
        for kind, name in (("branch", "refs/heads/"), ("tag", "refs/tags/"), ("reference", "")):
            if name + version in references:
                return kind, references[name + version]
        if re.fullmatch(r"[0-9a-fA-F]{7,40}", version):
            return "commit", version.lower()
        raise StepFailed("The repository has no branch, tag or commit '%s'." % version)

    def modified(self):
        """Files that differ from the last commit; untracked ones do not count."""
        if self.args["bare"]:
            return []
        _, out = self.look("status", "--porcelain")
        return [line for line in out.splitlines() if not line.startswith("??")]

    def clone(self, kind, commit):
        """Into a directory aside, which takes its place only when it is whole."""
        args = self.args
        above = os.path.dirname(self.dest)
        os.makedirs(above, exist_ok=True)
        if os.path.isdir(self.dest) and os.listdir(self.dest):
            raise StepFailed("%s exists, is not empty, and is not a git repository." % self.dest)
        aside = os.path.join(above, ".%s.rm-new" % os.path.basename(self.dest)[:200])
        shutil.rmtree(aside, ignore_errors=True)
        os.mkdir(aside)  # not one that somebody else put there
        words = ["clone", "--origin", args["remote"]]
        words += ["--bare"] if args["bare"] else []
        if args["depth"] and kind != "commit":
            words += ["--depth", str(args["depth"])]
        words += ["--no-single-branch"] if args["depth"] and not args["single_branch"] else []
        words += ["--single-branch"] if args["single_branch"] else []
        words += ["--branch", args["version"]] if kind in ("branch", "tag") else []
        words += ["--reference", args["reference"]] if args["reference"] else []
        words += ["--separate-git-dir", args["separate_git_dir"]] if args["separate_git_dir"] else []
        try:
            self.run(*words, args["repo"], aside, where="/")
            if kind in ("commit", "reference"):
                self.fetch(aside)
            if not args["bare"]:
                if kind in ("commit", "reference"):
                    self.run("checkout", "--force", commit, where=aside)
                self.submodules(aside)
            self.verify(commit, aside)
            if os.path.isdir(self.dest):
                seen = os.stat(self.dest)
                os.chmod(aside, seen.st_mode & 0o7777)
                if os.getuid() == 0:
                    os.chown(aside, seen.st_uid, seen.st_gid)
            os.rename(aside, self.dest)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def fetch(self, where):
        args = self.args
        words = ["fetch", "--force", *(["--depth", str(args["depth"])] if args["depth"] else [])]
        if args["bare"]:
            everything = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
            self.run(*words, args["remote"], *everything, where=where)
        else:
            self.run(*words, "--tags", args["remote"], where=where)
        if args["refspec"]:
            self.run("fetch", "--force", args["remote"], args["refspec"], where=where)

    def submodules(self, where):
        """Bring submodules to what the checkout says; whether any moved."""
        if not self.args["recursive"] or not os.path.exists(os.path.join(where, ".gitmodules")):
            return False
        before = self.run("submodule", "status", "--recursive", where=where)
        self.run("submodule", "sync", "--recursive", where=where)
        track = ["--remote"] if self.args["track_submodules"] else []
        self.run("submodule", "update", "--init", "--recursive", "--force", *track, where=where)
        return self.run("submodule", "status", "--recursive", where=where) != before

    def switch(self, kind, commit):
        args = self.args
        if args["bare"]:
            return
        if kind in ("head", "branch"):
            branch = args["version"]
            if kind == "head":
                out = self.run("ls-remote", "--symref", args["remote"], "HEAD")
                match = re.search(r"^ref: refs/heads/(\S+)\s+HEAD", out, re.MULTILINE)
                branch = match.group(1) if match else "HEAD"
            if branch == "HEAD":
                self.run("checkout", "--force", commit)
                return
            self.run("checkout", "--force", "-B", branch, "%s/%s" % (args["remote"], branch))
            return
        self.run("checkout", "--force", args["version"] if kind == "tag" else commit)

    def verify(self, commit, where):
        if self.args["verify_commit"]:
            kind = self.run("cat-file", "-t", self.args["version"], where=where)
            self.run("verify-tag" if kind == "tag" else "verify-commit", self.args["version"], where=where)


def do_git(run, args):
    checkout = Checkout(args)
    for path in filter(None, (checkout.dest, args["separate_git_dir"])):
        refuse_led_away(path + "/")
    references = None
    result = {"changed": False, "before": None, "remote_url_changed": False}
    if checkout.dest is None or (not args["clone"] and not checkout.there()):
        references = checkout.remote_references()
        return dict(result, changed=True, after=checkout.wanted(references)[1])  # as Ansible says it
    if not checkout.there():
        kind, commit = checkout.wanted(checkout.remote_references())
        diff = state_diff(run, checkout.dest, ["clone %s" % commit])
        if not run.check:
            checkout.clone(kind, commit)
            commit = checkout.head()
        return dict(result, changed=True, after=commit, diff=diff)
    before = checkout.head()
    result.update(before=before, after=before)
    if not args["update"]:
        return result
    dirty = checkout.modified()
    if dirty and not args["force"]:
        raise StepFailed("Local modifications exist in the destination: %s (force=no)." % checkout.dest)
    changes = ["local modifications are dropped"] if dirty else []
    _, url = checkout.look("config", "--get", "remote.%s.url" % args["remote"])
    if url.strip() != args["repo"]:
        result["remote_url_changed"] = True
        changes.append("remote %s" % args["remote"])
        if not run.check:
            verb = "set-url" if url.strip() else "add"
            checkout.run("remote", verb, args["remote"], args["repo"])
    kind, commit = checkout.wanted(checkout.remote_references())
    full = checkout.look("rev-parse", "--verify", "--quiet", commit + "^{commit}")[1].strip() or commit
    if run.check:
        moved = not (before or "").startswith(commit) and full != before
        changes += ["%s -> %s" % (before, commit)] if moved else []
        result["after"] = commit if moved else before
    else:
        if dirty and not args["bare"]:
            checkout.run("reset", "--hard", "HEAD")
        if full != before or kind == "branch" or result["remote_url_changed"]:
            if full != before:
                checkout.fetch(checkout.dest)
            checkout.switch(kind, commit)
        checkout.verify(commit, checkout.dest)
        if not args["bare"] and checkout.submodules(checkout.dest):
            changes.append("submodules")
        result["after"] = checkout.head()
        if result["after"] != before:
            changes.append("%s -> %s" % (before, result["after"]))
    return dict(result, changed=bool(changes), diff=state_diff(run, checkout.dest, changes))
