"""`apt_key`: what apt trusts, by `apt-key` and `gpg`."""

import os

from rm_steps_base import StepFailed, execute, must, plain_environment, state_diff, tool

TRIES = 5  # of a key server, as Ansible's


def _keys(out):
    """The ids of primary keys and subkeys that a listing in colons holds, expired ones left out."""
    rows = [line.split(":") for line in out.splitlines()]
    return [row[4] for row in rows if row[0] in ("pub", "sub") and len(row) > 4 and row[1] != "e"]


class AptKey:
    def __init__(self, keyring):
        self.argv = [tool("apt-key"), *(["--keyring", keyring] if keyring else [])]

    def known(self, run, short):
        # apt-key says on standard error, always, that it is deprecated
        env = plain_environment(APT_KEY_DONT_WARN_ON_DANGEROUS_USAGE="1")
        found = _keys(must([*self.argv, "adv", "--list-public-keys", "--with-colons"], env=env))
        for key, there in run.planned["states"].get("apt keys", {}).items():
            found = [*found, key] if there else [one for one in found if not one.endswith(key[-8:])]
        return [key[-8:] for key in found] if short else found

    def do(self, *words, data=None):
        must([*self.argv, *words], stdin=data)


def _id_of(data):
    out = must([tool("gpg"), "--batch", "--no-tty", "--with-colons", "--show-keys", "-"], stdin=data)
    keys = _keys(out)
    if not keys:
        raise StepFailed("Unable to extract a key: gpg finds none.")
    return keys[0]


def _from_server(keys, args, number):
    proxy = next((os.environ[n] for n in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
                  if os.environ.get(n)), None)  # fmt: skip
    through = ["--keyserver-options", "http-proxy=" + proxy] if proxy else []
    argv = [*keys.argv, "adv", "--no-tty", "--keyserver", args["keyserver"], *through, "--recv", number]
    for _ in range(TRIES):
        code, out, err = execute(argv, env=plain_environment())
        if code == 0:
            return
    told = (number, args["keyserver"], (err or out).strip()[-2000:])
    raise StepFailed("Error fetching key %s from keyserver: %s: %s" % told, rc=code)


def do_apt_key(run, args):
    keys, data = AptKey(args["keyring"]), args["data"]
    data = data.encode() if data is not None else None

    def fetched():
        from rm_steps_web import content_of

        if args["file"]:
            with open(args["file"], "rb") as file:
                return file.read()
        return content_of(args["url"], args) if args["url"] else data

    number = args["id"]
    if not number:
        data = fetched()
        number = _id_of(data)
    elif data is None and args["state"] == "present" and not args["keyserver"] and not args["url"]:
        data = fetched()
    full = number.upper()
    full = full[2:] if full.startswith("0X") else full
    short, mark = full[-8:], full[-16:]
    before = keys.known(run, len(full) == 8)
    wanted, there = args["state"] == "present", (short if len(full) == 8 else mark) in before
    result = {"changed": there != wanted, "id": number, "short_id": short, "fp": mark, "key_id": full}
    result["before"] = before
    if there == wanted:
        return result
    result["diff"] = state_diff(run, "key " + full, ["trusted" if wanted else "not trusted"])
    if run.check:
        run.planned["states"].setdefault("apt keys", {})[mark] = wanted
        return result
    if not wanted:
        keys.do("del", short)
    elif args["keyserver"]:
        _from_server(keys, args, full)
    else:
        keys.do("add", "-", data=data if data is not None else fetched())
    result["after"] = keys.known(run, len(full) == 8)
    if ((short if len(full) == 8 else mark) in result["after"]) != wanted:
        done = "added" if wanted else "removed"
        said = "apt-key did not return an error, but the key was not %s; is the id right, and not a subkey's?"
        raise StepFailed(said % done)
    return result
