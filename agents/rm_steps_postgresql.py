"""`postgresql_db`, `postgresql_user`: databases and roles of PostgreSQL, by `psql`.

Statements and passwords go over standard input and the environment: no process list shows them.
"""

import os

from rm_steps_base import StepFailed, absolute, execute, plain_environment, state_diff, tool
from rm_steps_write import write_output

PACKERS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz"}
FIELD, RECORD = "\x1f", "\x1e"
COLUMNS = {
    "SUPERUSER": "rolsuper",
    "CREATEROLE": "rolcreaterole",
    "CREATEDB": "rolcreatedb",
    "INHERIT": "rolinherit",
    "LOGIN": "rolcanlogin",
    "REPLICATION": "rolreplication",
    "BYPASSRLS": "rolbypassrls",
}


def text(value):
    """A value as SQL writes it."""
    escaped = str(value).replace("'", "''")
    return " E'%s'" % escaped.replace("\\", "\\\\") if "\\" in escaped else "'%s'" % escaped


def name(value):
    """A name; one that is quoted already stays as it is."""
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1].replace('""', '"')
    return '"' + value.replace('"', '""') + '"'


class Client:
    def __init__(self, args):
        self.args = args
        self.where = ["-h", args["login_unix_socket"] or args["login_host"]]
        self.where = self.where if self.where[1] else []
        self.where += ["-U", args["login_user"], "-p", str(args["login_port"])]
        more = {"PGPASSWORD": args["login_password"]} if args["login_password"] else {}
        if args["ssl_mode"] != "prefer":
            more["PGSSLMODE"] = args["ssl_mode"]
        for key, word in (("ca_cert", "PGSSLROOTCERT"), ("ssl_cert", "PGSSLCERT"), ("ssl_key", "PGSSLKEY")):
            if args[key]:
                more[word] = args[key]
        self.env = plain_environment(**more)

    def run(self, *statements):
        """The rows of statements, each on its own, as lists of texts. Raises StepFailed."""
        argv = [
            tool("psql"),
            "-X",
            "-q",
            "-A",
            "-t",
            "-w",
            "-v",
            "ON_ERROR_STOP=1",
            "-F",
            FIELD,
            "-R",
            RECORD,
        ]
        argv += [*self.where, "-d", self.args["maintenance_db"]]
        role = self.args["session_role"]
        lines = ["SET ROLE %s;\n" % name(role)] if role else []
        lines += [one + ";\n" for one in statements]
        code, out, err = execute(argv, env=self.env, stdin="".join(lines))
        if code != 0:
            said = "\n".join(line for line in err.splitlines() if not line.startswith(("LINE ", " ")))
            if code == 2:
                said = "unable to connect to database: " + said
            raise StepFailed(said.strip() or "psql failed (%d)" % code, rc=code)
        out = out[:-1] if out.endswith("\n") else out
        return [row.split(FIELD) for row in out.split(RECORD) if row]


def do_postgresql_db(run, args):
    client, state, database = Client(args), args["state"], args["name"]
    if state in ("dump", "restore"):
        return _move(run, args, client)
    statements, told = [], []
    columns = ("pg_get_userbyid(datdba)", "pg_encoding_to_char(encoding)", "datcollate", "datctype",
               "datconnlimit", "(SELECT spcname FROM pg_tablespace t WHERE t.oid = dattablespace)",
               "coalesce(shobj_description(oid, 'pg_database'), '')")  # fmt: skip
    query = "SELECT %s FROM pg_database WHERE datname = " % ", ".join(columns)
    rows = client.run(query + text(database))
    planned = run.planned["states"].get("postgresql database " + database)
    there = bool(rows) if planned is None else planned == "present"
    if state == "rename":
        other = bool(client.run("SELECT 1 FROM pg_database WHERE datname = " + text(args["target"])))
        if there and other:
            said = "Both the source and the target databases exist."
            raise StepFailed(said)
        if not there and not other:
            raise StepFailed("The source database %s does not exist." % database)
        if there:
            statements.append("ALTER DATABASE %s RENAME TO %s" % (name(database), name(args["target"])))
    elif state == "absent":
        if there:
            statements.append("DROP DATABASE " + name(database) + (" WITH (FORCE)" if args["force"] else ""))
    elif not there:
        statements += _create(args)
    elif rows:
        keys = ("owner", "encoding", "lc_collate", "lc_ctype", "conn_limit", "tablespace", "comment")
        statements += _alter(args, {key: rows[0][i] for i, key in enumerate(keys)})
    told += statements
    if run.check and statements:
        run.planned["states"]["postgresql database " + database] = (
            "present" if state == "present" else "absent"
        )
    for one in statements if not run.check else ():
        client.run(one)  # CREATE DATABASE is not possible among others
    diff = state_diff(run, "postgresql", told)
    return {"changed": bool(statements), "db": database, "executed_commands": statements, "diff": diff}


def _create(args):
    words = ["CREATE DATABASE " + name(args["name"])]
    words += ["OWNER " + name(args["owner"])] if args["owner"] else []
    words += ["TEMPLATE " + name(args["template"])] if args["template"] else []
    for key, word in (("encoding", "ENCODING"), ("lc_collate", "LC_COLLATE"), ("lc_ctype", "LC_CTYPE"),
                      ("icu_locale", "ICU_LOCALE")):  # fmt: skip
        words += ["%s %s" % (word, text(args[key]))] if args[key] else []
    words += ["LOCALE_PROVIDER " + args["locale_provider"]] if args["locale_provider"] else []
    words += ["TABLESPACE " + name(args["tablespace"])] if args["tablespace"] else []
    words += ["CONNECTION LIMIT " + args["conn_limit"]] if args["conn_limit"] else []
    found = [" ".join(words)]
    if args["comment"]:
        found.append("COMMENT ON DATABASE %s IS %s" % (name(args["name"]), text(args["comment"])))
    return found


def _alter(args, old):
    """Statements for what may change later; raises StepFailed for what may not."""
    alter = "ALTER DATABASE " + name(args["name"])
    if args["encoding"] and _plain(args["encoding"]) != _plain(old["encoding"]):
        said = "Changing database encoding is not supported. Current encoding: %s"
        raise StepFailed(said % old["encoding"])
    for key, word in (("lc_collate", "LC_COLLATE"), ("lc_ctype", "LC_CTYPE")):
        if args[key] and args[key] != old[key]:
            raise StepFailed("Changing %s is not supported. Current %s: %s" % (word, word, old[key]))
    found = []
    if args["owner"] and args["owner"] != old["owner"]:
        found.append("%s OWNER TO %s" % (alter, name(args["owner"])))
    if args["conn_limit"] and args["conn_limit"] != old["conn_limit"]:
        found.append("%s CONNECTION LIMIT %s" % (alter, args["conn_limit"]))
    if args["tablespace"] and args["tablespace"] != old["tablespace"]:
        found.append("%s SET TABLESPACE %s" % (alter, name(args["tablespace"])))
    if args["comment"] is not None and args["comment"] != old["comment"]:
        found.append("COMMENT ON DATABASE %s IS %s" % (name(args["name"]), text(args["comment"])))
    return found


def _plain(encoding):
    return encoding.upper().replace("-", "").replace("_", "")


def _move(run, args, client):
    """A dump, or a restore; both always change something, as with Ansible."""
    import shlex

    target, dump = absolute(args["target"]), args["state"] == "dump"
    if not dump and not os.path.exists(target) and not run.check:
        raise StepFailed("The file %s does not exist." % target)
    base, packer = os.path.splitext(target)[0], PACKERS.get(os.path.splitext(target)[1])
    ending = os.path.splitext(base if packer else target)[1]
    formats = {".dir": "d", ".pgc": "c", ".tar": "t"}
    plain = ending not in formats
    if dump:
        argv = [tool("pg_dump"), *client.where, "-w", *shlex.split(args["target_opts"])]
        argv += ["--format=" + formats[ending]] if not plain else []
        argv += [*shlex.split(args["dump_extra_args"]), args["name"]]
        argv += ["-f", target] if ending == ".dir" else []
    else:
        argv = [tool("psql"), "-X", *client.where, "-w", args["name"]] if plain else [
            tool("pg_restore"), *client.where, "-w", "--format=" + formats[ending], "--dbname", args["name"]
        ]  # fmt: skip
        argv += shlex.split(args["target_opts"])
        argv += [target] if ending == ".dir" else []
    line = " ".join(shlex.quote(word) for word in argv)
    quoted, aside = shlex.quote(target), ""
    if ending != ".dir":
        if dump:
            aside = line + (" | %s -c" % tool(packer) if packer else "")
            line = aside + " > " + quoted
        else:
            line = "%s -dc %s | %s" % (tool(packer), quoted, line) if packer else "%s < %s" % (line, quoted)
    result = {"changed": True, "db": args["name"], "executed_commands": [line]}
    if not run.check:
        if aside:
            (code, err), out = write_output(target, aside, client.env), ""
        else:
            code, out, err = execute([tool("bash"), "-c", "set -o pipefail; " + line], env=client.env)
        if code != 0:
            raise StepFailed(err.strip() or "it failed (%d)" % code, rc=code, cmd=line)
        result.update(msg=out, stderr=err, rc=code, cmd=line)
    return dict(result, diff=state_diff(run, target, ["%s %s" % (args["state"], args["name"])]))


# -- roles --------------------------------------------------------------------------------------


def _same_password(client, args):
    """Is it the password that the server keeps the hash of? Not known: it is not."""
    import base64
    import hashlib
    import hmac

    password = args["password"]
    try:
        rows = client.run(
            "SELECT coalesce(rolpassword, '') FROM pg_authid WHERE rolname = " + text(args["name"])
        )
    except StepFailed:
        return False  # only superusers may look
    stored = rows[0][0] if rows else ""
    if password == "" or stored == "":
        return password == stored
    if password.startswith(("md5", "SCRAM-SHA-256$")) and password == stored:
        return True
    if stored.startswith("md5"):
        return stored == "md5" + hashlib.md5((password + args["name"]).encode()).hexdigest()
    if not stored.startswith("SCRAM-SHA-256$"):
        return password == stored
    try:  # SCRAM-SHA-256$ITERATIONS:SALT$STORED:SERVER, RFC 5803
        rounds, salt = stored.split("$")[1].split(":")
        server = base64.b64decode(stored.split("$")[2].split(":")[1])
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(salt), int(rounds))
    except (ValueError, IndexError):
        return False
    return hmac.new(salted, b"Server Key", hashlib.sha256).digest() == server


def do_postgresql_user(run, args):
    client, user, statements = Client(args), args["name"], []
    columns = [*COLUMNS.values(), "rolconnlimit", "coalesce(shobj_description(oid, 'pg_authid'), '')"]
    expires = args["expires"]
    columns.append(
        "rolvaliduntil IS NOT DISTINCT FROM %s::timestamptz" % text(expires) if expires else "true"
    )
    rows = client.run("SELECT %s FROM pg_roles WHERE rolname = %s" % (", ".join(columns), text(user)))
    shown = []  # the same, without the password
    result = {"changed": False, "user": user, "queries": shown, "diff": []}
    if args["state"] == "absent":
        if not rows or not run.is_new_state("postgresql role " + user, "absent"):
            return dict(result, user_removed=False)
        shown.append("DROP USER " + name(user))
        if not run.check:
            try:
                client.run(shown[0])
            except StepFailed as problem:
                if args["fail_on_user"]:
                    raise StepFailed("Unable to remove user: %s" % problem) from None
                return dict(result, msg="Unable to remove user", user_removed=False, queries=[])
        return dict(result, changed=True, user_removed=True, diff=state_diff(run, "postgresql", shown))
    password, flags = args["password"], args["role_attr_flags"]
    changes, hidden = [], []
    if not rows:
        changes += flags
        word = password is not None
    else:
        keys = [*COLUMNS, "limit", "comment", "expires"]
        old = {key: rows[0][i] for i, key in enumerate(keys)}
        wanted = [one for one in flags if not (one in COLUMNS and old[one] == "t")]
        changes += [one for one in wanted if not (one.startswith("NO") and old.get(one[2:]) == "f")]
        word = password is not None and not args["no_password_changes"] and not _same_password(client, args)
    if word:
        hidden = ["PASSWORD " + (text(password) if password else "NULL")]
    if expires and not (rows and old["expires"] == "t") and not (rows and args["no_password_changes"]):
        changes.append("VALID UNTIL " + text(expires))
    if args["conn_limit"] is not None and not (rows and old["limit"] == str(args["conn_limit"])):
        changes.append("CONNECTION LIMIT %d" % args["conn_limit"])
    if changes or hidden or not rows:
        verb = "ALTER" if rows else "CREATE"
        with_ = " WITH " if changes or hidden else ""
        statements.append("%s USER %s%s%s" % (verb, name(user), with_, " ".join(hidden + changes)))
        told = ["PASSWORD %(password)s"] if hidden else []
        shown.append("%s USER %s%s%s" % (verb, name(user), with_, " ".join(told + changes)))
    if args["comment"] is not None and (args["comment"] != (old["comment"] if rows else "")):
        statements.append("COMMENT ON ROLE %s IS %s" % (name(user), text(args["comment"])))
        shown.append(statements[-1])
    if not statements or not run.is_new_state("postgresql role " + user, shown):
        return dict(result, queries=[])
    if not run.check:
        client.run(*statements)
    return dict(result, changed=True, diff=state_diff(run, "postgresql", shown))
