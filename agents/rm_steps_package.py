"""`package`, `apt`, `dnf`, `package_facts`: software is installed, or is not, by the host's own tools."""

from rm_steps_base import StepFailed, find_tool


def manager(args):
    """The host's package tools; `use` (or the module's own name) asks for one of them."""
    wanted = args.get("use") or "auto"
    if wanted not in ("auto", "apt", "dnf", "dnf5", "yum"):
        raise StepFailed("There is no package manager '%s' here that rm can use (apt, dnf, yum)." % wanted)
    if wanted == "apt" and not find_tool("dpkg-query"):
        raise StepFailed("This host has no apt; use 'package' for the host's own tool.")
    if wanted == "apt" or (wanted == "auto" and find_tool("dpkg-query") and find_tool("apt-get")):
        from rm_steps_apt import Debian

        refuse_foreign(args, "apt")
        return Debian(args)
    from rm_steps_dnf import RedHat

    refuse_foreign(args, "dnf")
    return RedHat(args)


def refuse_foreign(args, name):
    """`package` has arguments that only one of the tools knows."""
    foreign = (args.get("foreign") or {}).get(name)
    if foreign:
        raise StepFailed(
            "This host's %s does not know %s." % (name, ", ".join("'%s'" % one for one in foreign))
        )


def do_package(run, args):
    return manager(args).apply(run)


def do_package_facts(run, args):
    found = {}
    wanted = [one for one in args["manager"] if one != "auto"]
    for name, needs in (("apt", "dpkg-query"), ("rpm", "rpm")):
        if (not wanted or name in wanted) and find_tool(needs):
            if name == "apt":
                from rm_steps_apt import facts
            else:
                from rm_steps_dnf import facts
            found.update(facts())
            if not wanted and found:
                break
    if not found:
        raise StepFailed("This host has none of the package managers asked for (apt, rpm).")
    return {"changed": False, "ansible_facts": {"packages": found}}
