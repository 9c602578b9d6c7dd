"""`mysql_db`, `mysql_user`: databases and accounts of MySQL and MariaDB, by their command-line client.

Passwords are in a private file that the client reads: no process list shows them.
"""

import os
import re
import tempfile

from rm_steps_base import StepFailed, absolute, execute, plain_environment, state_diff, tool
from rm_steps_write import write_output

PACKERS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
_GRANT = re.compile(r"GRANT (.+) ON (.+) TO ([`'\"]).*?\3@([`'\"]).*?\4(.*)")


def text(value):
    """A value as SQL writes it."""
    return "'" + str(value).replace("\\", "\\\\").replace("'", "''") + "'"


def name(value):
    return "`" + value.replace("`", "``") + "`"


def _said(value):
    """A value as a file of options has it."""
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _names_ca(config):
    """Does the file of options, if there is one, name an authority?"""
    try:
        with open(config, encoding="utf-8", errors="replace") as file:
            return re.search(r"(?m)^\s*(loose[-_])?ssl[-_]ca(path)?\s*=", file.read()) is not None
    except OSError:
        return False


def _checked_name(checks, has_ca):
    """The options for `check_hostname`: MariaDB's client knows the one, MySQL's the other."""
    found = []
    # false ends every check of the certificate by MariaDB's client since 11.4: without it the authority is
    # checked there, and the name with it
    if checks or (checks is not None and not has_ca):
        found.append(("loose-ssl-verify-server-cert", int(checks)))
    if checks is not None and has_ca:  # without an authority MySQL's client refuses to check
        found.append(("loose-ssl-mode", "VERIFY_IDENTITY" if checks else "VERIFY_CA"))
    return found


class Client:
    """The client with a way to log in; `close` removes the file of options."""

    def __init__(self, args, user=None, password=None):
        self.args = args
        fd, self.path = tempfile.mkstemp(".cnf", "rm-mysql-")
        config = os.path.expanduser(args["config_file"])
        lines = ["!include " + config] if os.path.isfile(config) else []
        user = args["login_user"] if user is None else user
        password = args["login_password"] if password is None else password
        given = [("user", user), ("password", password), ("socket", args["login_unix_socket"])]
        given += [
            ("ssl-cert", args["client_cert"]),
            ("ssl-key", args["client_key"]),
            ("ssl-ca", args["ca_cert"]),
        ]
        given += _checked_name(args["check_hostname"], bool(args["ca_cert"]) or _names_ca(config))
        if args["login_host"] != "localhost":
            given += [("host", args["login_host"]), ("port", args["login_port"]), ("protocol", "tcp")]
        lines.append("[client]")
        lines += ["%s=%s" % (key, _said(value)) for key, value in given if value is not None]
        with open(fd, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")

    def close(self):
        os.unlink(self.path)

    def argv(self, *programs):
        return [tool(*programs), "--defaults-extra-file=" + self.path]

    def run(self, statements, database=None):
        """Rows of what statements give, as lists of texts. Raises StepFailed."""
        argv = [*self.argv("mysql", "mariadb"), "--batch", "--skip-column-names"]
        argv += ["--default-character-set=utf8mb4", "--connect-timeout=%d" % self.args["connect_timeout"]]
        head = "" if self.args["sql_log_bin"] else "SET SQL_LOG_BIN=0;\n"
        sql = head + "".join(one + ";\n" for one in statements)
        argv += [database] if database else []
        code, out, err = execute(argv, env=plain_environment(), stdin=sql)
        if code != 0:
            # the client shows the statement, too, which may hold a password
            shown = [line for line in err.splitlines() if line.startswith("ERROR")]
            said = "\n".join(shown) or "mysql failed (%d)" % code
            if "Access denied" in said or "Can't connect" in said or "ERROR 20" in said:
                said = "unable to connect to database, check login_user and login_password: " + said
            raise StepFailed(said, rc=code)
        return [_unescaped(line).split("\t") for line in out.splitlines()]


def _unescaped(line):
    return line.replace("\\n", "\n").replace("\\\\", "\\")


def client_for(args):
    """The client that gets in: with `check_implicit_admin` first as root without a password."""
    if args["check_implicit_admin"]:
        client = Client(args, "root", "")
        try:
            client.run(["SELECT 1"])
            return client
        except StepFailed:
            client.close()
    return Client(args)


def do_mysql_db(run, args):
    client = client_for(args)
    try:
        return _database(run, args, client)
    finally:
        client.close()


def _database(run, args, client):
    names, state = [one.strip() for one in args["name"]], args["state"]
    there = {row[0] for row in client.run(["SHOW DATABASES"])}
    planned = run.planned["states"].setdefault("mysql databases", {}) if run.check else {}
    there = {one for one in there | set(planned) if planned.get(one, True)}
    result = {"changed": False, "db": " ".join(names), "db_list": names, "executed_commands": []}
    if state in ("dump", "import"):
        missing = [one for one in names if one not in there] if names != ["all"] else []
        if state == "dump" and missing:
            raise StepFailed("Cannot dump database(s) '%s' - not found" % ", ".join(missing))
        if not run.check:
            client.run([_create(args, one) for one in missing])
            result["msg"] = (_dump if state == "dump" else _import)(args, client, names)
        diff = state_diff(run, absolute(args["target"]), ["%s %s" % (state, result["db"])])
        return dict(result, changed=True, diff=diff)
    chosen = [one for one in names if (one in there) == (state == "absent")]
    statements = ["DROP DATABASE " + name(one) if state == "absent" else _create(args, one) for one in chosen]
    if statements and not run.check:
        client.run(statements)
    planned.update(dict.fromkeys(chosen, state == "present"))
    diff = state_diff(run, "mysql", statements)
    return dict(result, changed=bool(statements), executed_commands=statements, diff=diff)


def _create(args, database):
    found = "CREATE DATABASE " + name(database)
    found += " CHARACTER SET " + text(args["encoding"]) if args["encoding"] else ""
    return found + (" COLLATE " + text(args["collation"]) if args["collation"] else "")


def _dump(args, client, names):
    import shlex

    argv = client.argv("mysqldump", "mariadb-dump")
    argv += ["--all-databases"] if names == ["all"] else ["--databases", *names]
    argv += ["--skip-lock-tables"] if args["skip_lock_tables"] else []
    for flag, word in (("force", "--force"), ("single_transaction", "--single-transaction=true"),
                       ("quick", "--quick"), ("hex_blob", "--hex-blob")):  # fmt: skip
        argv += [word] if args[flag] else []
    argv += ["--master-data=%d" % args["master_data"]] if args["master_data"] else []
    argv += ["--default-character-set=" + args["encoding"]] if args["encoding"] else []
    argv += ["--ignore-table=" + one for one in args["ignore_tables"]]
    argv += shlex.split(args["dump_extra_args"] or "")
    target = absolute(args["target"])
    packer = PACKERS.get(os.path.splitext(target)[1])
    line = " ".join(shlex.quote(word) for word in argv)
    line += " | %s -c" % tool(packer) if packer else ""
    code, err = write_output(target, line)
    if code != 0:
        raise StepFailed(err.strip() or "the dump failed (%d)" % code, rc=code)
    return ""


def _import(args, client, names):
    import shlex

    target = absolute(args["target"])
    if not os.path.exists(target):
        raise StepFailed("target %s does not exist on the host" % target)
    argv = client.argv("mysql", "mariadb") + (["-f"] if args["force"] else [])
    argv += ["--default-character-set=" + args["encoding"]] if args["encoding"] else []
    argv += [] if names == ["all"] else ["--one-database", names[0]]
    packer = PACKERS.get(os.path.splitext(target)[1])
    line = " ".join(shlex.quote(word) for word in argv)
    source = "%s -dc %s | %s" if packer else "%s%s"
    if packer:
        line = source % (tool(packer), shlex.quote(target), line)
    else:
        line = "%s < %s" % (line, shlex.quote(target))
    code, out, err = execute([tool("bash"), "-c", "set -o pipefail; " + line], env=plain_environment())
    if code != 0:
        raise StepFailed(err.strip() or "the import failed (%d)" % code, rc=code)
    return out


# -- accounts -----------------------------------------------------------------------------------


def _split(words):
    """Privileges between commas that are not inside of brackets, columns in order."""
    found = []
    for word in re.split(r",\s*(?![^(]*\))", words):
        match = re.match(r"(\w[\w ]*?)\s*\((.*)\)$", word.strip())
        if match:
            columns = sorted(one.strip(" `") for one in match.group(2).split(","))
            word = "%s (%s)" % (match.group(1), ", ".join(columns))
        found.append("ALL" if word.strip() == "ALL PRIVILEGES" else word.strip())
    return found


def _granted(client, account):
    found = {}
    for row in client.run(["SHOW GRANTS FOR " + account]):
        match = _GRANT.match(row[0])
        if match is None:
            if row[0].startswith(("GRANT", "SET DEFAULT ROLE")):
                continue  # a role
            raise StepFailed("unable to parse the MySQL grant string: %s" % row[0])
        words = _split(match.group(1)) + (["GRANT"] if "WITH GRANT OPTION" in match.group(5) else [])
        found.setdefault(match.group(2), []).extend(words)
    return found


def _revoke(where, words, account, option):
    rest = [one for one in words if one != "GRANT"]
    found = ["REVOKE GRANT OPTION ON %s FROM %s" % (where, account)] if option else []
    if rest and not (option and rest == ["USAGE"]):
        found.append("REVOKE %s ON %s FROM %s" % (",".join(rest), where, account))
    return found


def _grant(where, words, account):
    rest = [one for one in words if one != "GRANT"] or ["USAGE"]
    tail = " WITH GRANT OPTION" if "GRANT" in words else ""
    return ["GRANT %s ON %s TO %s%s" % (",".join(rest), where, account, tail)]


def _privileges(args, account, old, told):
    """The statements that bring an account's privileges to the wanted ones."""
    new, statements = args["priv"], []
    replaces = not args["append_privs"] and not args["subtract_privs"]
    for where, words in old.items() if replaces else ():
        if where not in new and args["name"] != "root" and "PROXY" not in words:
            told.append("Privileges updated")
            statements += _revoke(where, words, account, "GRANT" in words)
    for where, words in new.items():
        if where not in old:
            if not args["subtract_privs"]:
                told.append("New privileges granted")
                statements += _grant(where, words, account)
            continue
        grant, revoke = sorted(set(words) - set(old[where])), sorted(set(old[where]) - set(words))
        if args["append_privs"]:
            revoke = []
        elif args["subtract_privs"]:
            grant, revoke = [], sorted(set(words) & set(old[where]))
        elif "ALL" in grant:
            revoke = [one for one in revoke if one in ("GRANT", "PROXY")]
        revoke = [one for one in revoke if one != "USAGE"]
        grant = [] if grant == ["USAGE"] else grant
        if grant or revoke:
            told.append("Privileges updated: granted %s, revoked %s" % (grant, revoke))
            statements += _revoke(where, revoke, account, "GRANT" in revoke) if revoke else []
            statements += _grant(where, grant, account) if grant else []
    return statements


def _identified(args, maria):
    """How an account is identified, as CREATE USER and ALTER USER say it; "" = by nothing that is given."""
    if args["password"] is not None and args["password"] != "":
        if args["encrypted"]:
            word = "BY PASSWORD" if maria else "WITH mysql_native_password AS"
            return " IDENTIFIED %s %s" % (word, text(args["password"]))
        return " IDENTIFIED BY " + text(args["password"])
    if not args["plugin"]:
        return ""
    found = " IDENTIFIED WITH " + args["plugin"]
    if args["plugin_hash_string"]:
        return found + " AS " + text(args["plugin_hash_string"])
    if args["plugin_auth_string"]:
        using = maria and args["plugin"] in ("pam", "ed25519")
        value = text(args["plugin_auth_string"])
        return (
            found
            + (" USING " if using else " BY ")
            + ("PASSWORD(%s)" % value if using and args["plugin"] == "ed25519" else value)
        )
    return found


def _same_password(args, client, host):
    """Is what identifies the account the wanted thing already?"""
    where = " WHERE user = %s AND host = %s" % (text(args["name"]), text(host))
    rows = client.run(["SELECT plugin, authentication_string FROM mysql.user" + where])
    plugin, stored = (rows[0] + [""])[:2] if rows else ("", "")
    if args["plugin"]:
        wanted = args["plugin_hash_string"]
        return plugin == args["plugin"] and not args["plugin_auth_string"] and wanted in (None, stored)
    if args["encrypted"]:
        return stored == args["password"]
    half = "SHA1(UNHEX(SHA1(%s)))" % text(args["password"])
    return stored.upper() == client.run(["SELECT CONCAT('*', UCASE(%s))" % half])[0][0]


_TLS_KINDS = {"": "NONE", "ANY": "SSL", "X509": "X509"}
_TLS_COLUMNS = (("CIPHER", "ssl_cipher"), ("ISSUER", "x509_issuer"), ("SUBJECT", "x509_subject"))


def _required(args, client, host):
    """What the account's connections need now, as `tls_requires` says it."""
    columns = ", ".join("CONVERT(%s USING utf8mb4)" % column for _, column in _TLS_COLUMNS)
    where = " WHERE user = %s AND host = %s" % (text(args["name"]), text(host))
    rows = client.run(["SELECT ssl_type, %s FROM mysql.user%s" % (columns, where)])
    kind, values = (rows[0][0], rows[0][1:]) if rows else ("", [])
    found = dict(zip([key for key, _ in _TLS_COLUMNS], values))  # noqa: B905 - not in Python 3.8
    specified = {key: value for key, value in found.items() if value not in ("", "NULL")}
    return specified or _TLS_KINDS.get(kind, kind)


def _require(wanted):
    """The clause of CREATE USER and ALTER USER."""
    if isinstance(wanted, str):
        return " REQUIRE " + wanted
    return " REQUIRE " + " AND ".join("%s %s" % (key, text(wanted[key])) for key in sorted(wanted))


def do_mysql_user(run, args):
    client = client_for(args)
    try:
        return _user(run, args, client)
    finally:
        client.close()


def _user(run, args, client):
    user = args["name"]
    maria = "mariadb" in client.run(["SELECT VERSION()"])[0][0].lower()
    rows = client.run(["SELECT host FROM mysql.user WHERE user = " + text(user)])
    known = [row[0] for row in rows]
    hosts = known if args["host_all"] else [args["host"].lower()]
    there = [host for host in hosts if host in [one.lower() for one in known] or args["host_all"]]
    statements, told, password = [], [], False
    if args["state"] == "absent":
        statements = ["DROP USER %s@%s" % (text(user), text(host)) for host in there]
        told = ["User deleted"] if there else ["User doesn't exist"]
    for host in hosts if args["state"] == "present" else ():
        account = "%s@%s" % (text(user), text(host))
        if host not in there:
            told.append("User added")
            password = bool(_identified(args, maria))
            required = _require(args["tls_requires"]) if args["tls_requires"] != "NONE" else ""
            statements.append("CREATE USER " + account + _identified(args, maria) + required)
            for where, words in (args["priv"] or {}).items():
                statements += _grant(where, words, account) if not args["subtract_privs"] else []
            continue
        said = _identified(args, maria)
        if said and args["update_password"] == "always" and not _same_password(args, client, host):
            told.append("Password updated")
            password = True
            statements.append("ALTER USER " + account + said)
        if args["priv"] is not None:
            statements += _privileges(args, account, _granted(client, account), told)
        if _required(args, client, host) != args["tls_requires"]:
            told.append("TLS requires updated")
            statements.append("ALTER USER " + account + _require(args["tls_requires"]))
    key = "mysql account %s %s" % (user, ",".join(hosts))
    if statements and not run.is_new_state(
        key, [args["state"], args["priv"], args["password"] is not None, args["tls_requires"]]
    ):
        statements = []
    if statements and not run.check:
        client.run(statements)
    result = {"changed": bool(statements), "user": user, "msg": told[-1] if told else "User unchanged"}
    result["password_changed"] = password and bool(statements)
    return dict(result, attributes=None, diff=state_diff(run, "mysql " + user, told) if statements else [])
