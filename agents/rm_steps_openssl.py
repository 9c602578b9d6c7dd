"""`openssl_privatekey`, `openssl_csr`, `x509_certificate`: keys and certificates, by the program `openssl`.

Keys and passphrases are in private files and the environment: no process list shows them.
"""

import contextlib
import hashlib
import os
import re
import tempfile

from rm_steps_base import StepFailed, absolute, execute, plain_environment, state_diff, tool
from rm_steps_write import described, fix_attributes, put_content, remove_file

CURVES = {"secp256r1": "prime256v1", "secp192r1": "prime192v1"}  # as openssl calls them
HASHES = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b", "blake2s")


def openssl(*words, secret=None):
    """(code, stdout, stderr); the passphrase `secret` is env:RM_SECRET."""
    return execute([tool("openssl"), *words], env=plain_environment(RM_SECRET=secret or ""))


def must(*words, **more):
    code, out, err = openssl(*words, **more)
    if code != 0:
        said = [line for line in err.splitlines() if line.strip()]
        raise StepFailed("openssl %s failed (%d): %s" % (words[0], code, "; ".join(said[-2:])), rc=code)
    return out


@contextlib.contextmanager
def held(text):
    """A private file with this text."""
    with tempfile.NamedTemporaryFile("w", prefix="rm-openssl-") as file:
        file.write(text)
        file.flush()
        yield file.name


@contextlib.contextmanager
def given(args, name):
    """The file that `NAME_path` or `NAME_content` mean; None when neither is given."""
    if args.get(name + "_content") is not None:
        with held(args[name + "_content"]) as path:
            yield path
    else:
        yield args.get(name + "_path")


def finish(run, args, path, data, changed, result, what):
    """Write the file, or only what is beside its content."""
    result = dict({"changed": changed, "filename": path}, **result)
    if not changed:
        changes = []
        if run.kind(path) != "absent":
            fix_attributes(run, path, args, changes)
        result.update(changed=bool(changes), diff=state_diff(run, path, changes))
    elif run.check:
        run.plan(path, "file")
        fix_attributes(run, path, args, [])
        result["diff"] = state_diff(run, path, [what])
    else:
        kept = put_content(run, path, data.encode(), dict(args, force=True))
        result.update({key: kept[key] for key in ("backup_file",) if key in kept})
        result["diff"] = state_diff(run, path, [what])
    return dict(described(run, path), **result)


def gone(run, path, result):
    there = run.kind(path) != "absent"
    if there:
        remove_file(run, path)
    diff = state_diff(run, path, ["removed"]) if there else []
    return dict(result, changed=there, filename=path, diff=diff)


def planned(run, path):
    """Does a file exist only in the plan of check mode?"""
    return (
        path is not None and run.check and run.planned["paths"].get(path) == "file" and run.read(path) is None
    )


# -- keys ---------------------------------------------------------------------------------------


def _public(path, secret):
    code, out, _ = openssl("pkey", "-in", path, "-passin", "env:RM_SECRET", "-pubout", secret=secret)
    return out if code == 0 else None


def _key_text(path, secret):
    words = ("pkey", "-in", path, "-passin", "env:RM_SECRET", "-noout", "-text_pub")
    code, out, _ = openssl(*words, secret=secret)
    return out if code == 0 else None


def _fits(args, text):
    """Is it a key of the wanted kind and size?"""
    kind = args["type"]
    if kind == "RSA":
        return "Modulus:" in text and "(%d bit" % args["size"] in text
    if kind == "ECC":
        match = re.search(r"ASN1 OID:\s*(\S+)", text)
        return match is not None and match.group(1) == CURVES.get(args["curve"], args["curve"])
    return text.upper().lstrip().startswith(kind.upper())


def _encrypted(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return "ENCRYPTED" in file.read()


def _new_key(args):
    kind, secret = args["type"], args["passphrase"]
    words = ["genpkey", "-algorithm", {"ECC": "EC"}.get(kind, kind)]
    if kind == "RSA":
        words += ["-pkeyopt", "rsa_keygen_bits:%d" % args["size"]]
    elif kind == "ECC":
        words += ["-pkeyopt", "ec_paramgen_curve:" + CURVES.get(args["curve"], args["curve"])]
        words += ["-pkeyopt", "ec_param_enc:named_curve"]
    text = must(*words)
    old_form = kind in ("RSA", "ECC") and args["format"] != "pkcs8"
    if not old_form and secret is None:
        return text
    with held(text) as path:
        words = ["pkey", "-in", path] + (["-traditional"] if old_form else [])
        cipher = "aes256" if args["cipher"] == "auto" else args["cipher"]
        words += ["-" + cipher, "-passout", "env:RM_SECRET"] if secret is not None else []
        return must(*words, secret=secret)


def _fingerprints(public):
    import base64

    body = "".join(line for line in public.splitlines() if "-----" not in line)
    data, found = base64.b64decode(body), {}
    for name in HASHES:
        with contextlib.suppress(ValueError):  # a host may forbid some
            text = hashlib.new(name, data).hexdigest()
            found[name] = ":".join(text[i : i + 2] for i in range(0, len(text), 2))
    return found


def do_openssl_privatekey(run, args):
    path, secret, how = absolute(args["path"]), args["passphrase"], args["regenerate"]
    result = {"type": args["type"], "size": args["size"]}
    result.update({"curve": args["curve"]} if args["type"] == "ECC" else {})
    if args["state"] == "absent":
        return gone(run, path, {})
    there, make = run.kind(path) != "absent", how == "always"
    if there and not make and not planned(run, path) and how != "never":
        text = _key_text(path, secret)
        if text is None or (secret is None) == _encrypted(path):
            if how != "full_idempotence":
                said = (
                    "Unable to read the key. The key is protected with a another passphrase / no passphrase"
                )
                raise StepFailed(said + " or broken. Will not proceed.")
            make = True
        elif not _fits(args, text):
            if how == "fail":
                raise StepFailed("Key has wrong type and/or size. Will not proceed.")
            make = True
    make = make or not there
    data = _new_key(args) if make and not run.check else ""
    result = finish(run, args, path, data, make, result, "a new key")
    if not run.check:
        public = _public(path, secret)
        result["fingerprint"] = _fingerprints(public) if public else {}
        if args["return_content"]:
            result["privatekey"] = run.read(path).decode()
    return result


# -- requests -----------------------------------------------------------------------------------


def _escaped(value):
    return value.replace("\\", "\\\\").replace("$", "\\$").replace("#", "\\#").replace('"', '\\"')


def _config(args):
    lines = ["[req]", "prompt = no", "utf8 = yes", "string_mask = utf8only", "distinguished_name = dn"]
    lines += ["req_extensions = ext"] if args["extensions"] else []
    lines += ["[dn]"]
    for number, (key, value) in enumerate(args["subject"]):
        key = {"E": "emailAddress"}.get(key, key)
        lines.append("%d.%s = %s" % (number, key, _escaped(value)))
    lines += ["[ext]"] + ["%s = %s" % (key, _escaped(value)) for key, value in args["extensions"]]
    return "\n".join(lines) + "\n"


def _looks(kind, path):
    """What a request or certificate says: (subject, extensions, public key); None when it is none."""
    code, text, _ = openssl(kind, "-in", path, "-noout", "-text", "-nameopt", "sep_multiline,utf8,esc_ctrl")
    if code != 0:
        return None
    public = openssl(kind, "-in", path, "-noout", "-pubkey")[1]
    match = re.search(r"^ {8}Subject:(.*\n(?: {12,}.*\n)*)", text, re.MULTILINE)
    subject = sorted(line.strip() for line in (match.group(1) if match else "").splitlines() if line.strip())
    extensions, name = {}, None
    start = re.search(r"^ +(Requested Extensions|X509v3 extensions):.*$", text, re.MULTILINE)
    for line in text[start.end() :].splitlines()[1:] if start else ():
        depth = len(line) - len(line.lstrip())
        if line.strip().startswith("Signature") or depth < 12:
            break
        if depth in (12, 16) and line.rstrip().endswith((":", ": ", "critical")):
            name = line.strip()
            extensions[name] = []
        elif name is not None:
            extensions[name].append(line.strip())
    return subject, {key: sorted(", ".join(value).split(", ")) for key, value in extensions.items()}, public


def do_openssl_csr(run, args):
    path, secret = absolute(args["path"]), args["privatekey_passphrase"]
    if args["state"] == "absent":
        return gone(run, path, {})
    result = {"privatekey": args["privatekey_path"], "subject": args["subject"]}
    there = run.kind(path) != "absent"
    with given(args, "privatekey") as key, held(_config(args)) as config:
        if planned(run, key) or planned(run, path):
            make = not there or planned(run, key)
            return finish(run, args, path, "", make, result, "a new request")
        if not os.path.exists(key):
            raise StepFailed("The private key %s does not exist" % key)
        data = must("req", "-new", "-config", config, "-key", key, "-passin", "env:RM_SECRET",
                    "-" + args["digest"], secret=secret)  # fmt: skip
    with held(data) as new:
        make = args["force"] or not there or _looks("req", path) != _looks("req", new)
    result = finish(run, args, path, data, make, result, "a new request")
    return dict(result, csr=run.read(path).decode()) if args["return_content"] and not run.check else result


# -- certificates -------------------------------------------------------------------------------


def do_x509_certificate(run, args):
    path = absolute(args["path"])
    if args["state"] == "absent":
        return gone(run, path, {})
    own = args["provider"] == "selfsigned"
    result = {"privatekey": args["privatekey_path"], "csr": args["csr_path"]}
    there = run.kind(path) != "absent"
    signer = "privatekey" if own else "ownca_privatekey"
    with given(args, "csr") as csr, given(args, signer) as key, given(args, "ownca") as authority:
        ahead = [one for one in (csr, key, authority, path) if planned(run, one)]
        if ahead:
            return finish(run, args, path, "", not there or ahead != [path], result, "a new certificate")
        for one in (csr, key, authority):
            if one is not None and not os.path.exists(one):
                raise StepFailed("The file %s does not exist" % one)
        secret = args["privatekey_passphrase" if own else "ownca_privatekey_passphrase"]
        with contextlib.ExitStack() as held_open:
            if csr is None:
                config = held_open.enter_context(held("[req]\nprompt=no\ndistinguished_name=dn\n[dn]\n"))
                words = (
                    "req",
                    "-new",
                    "-config",
                    config,
                    "-subj",
                    "/",
                    "-key",
                    key,
                    "-passin",
                    "env:RM_SECRET",
                )
                csr = held_open.enter_context(held(must(*words, secret=secret)))
            make = args["force"] or not there or not _certifies(path, csr, key, authority, secret)
            data = _signed(args, csr, key, authority, secret) if make and not run.check else ""
    result = finish(run, args, path, data, make, result, "a new certificate")
    return (
        dict(result, certificate=run.read(path).decode())
        if args["return_content"] and not run.check
        else result
    )


def _certifies(path, csr, key, authority, secret):
    """Is the certificate one for this request, by this signer?"""
    now, wanted = _looks("x509", path), _looks("req", csr)
    if now is None or wanted is None or now[0] != wanted[0] or now[2] != wanted[2]:
        return False
    made = ("X509v3 Subject Key Identifier", "X509v3 Authority Key Identifier")
    if any(now[1].get(name) != value for name, value in wanted[1].items()):
        return False
    if any(name not in wanted[1] and not name.startswith(made) for name in now[1]):
        return False
    if authority is None:
        return now[2] == _public(key, secret)
    _, out, err = openssl("verify", "-partial_chain", "-no_check_time", "-CAfile", authority, path)
    # another issuer, or a wrong signature; what else the authority may not be is the admin's
    return not re.search(r"^error (2|7|18|20|21) at", out + err, re.MULTILINE)


def _signed(args, csr, key, authority, secret):
    own = authority is None
    lines = ["subjectKeyIdentifier = hash"] + ([] if own else ["authorityKeyIdentifier = keyid"])
    serial = "0x" + os.urandom(19).hex()
    with held("\n".join(lines) + "\n") as more:
        words = ["x509", "-req", "-in", csr, "-days", str(args["days"]), "-set_serial", serial]
        words += ["-" + args["selfsigned_digest" if own else "ownca_digest"], "-copy_extensions", "copyall"]
        words += ["-extfile", more, "-passin", "env:RM_SECRET"]
        words += ["-signkey", key] if own else ["-CA", authority, "-CAkey", key]
        return must(*words, secret=secret)
