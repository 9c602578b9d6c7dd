"""Databases and accounts: of a real PostgreSQL, and of a recorded client of MySQL."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rm.playbook.model.problems import BadArgument
from tests import postgres
from tests.steps_request import done, kept, one, refused, run, step


@pytest.fixture(scope="module")
def login() -> Iterator[dict[str, Any]]:
    path = os.environ["PATH"]
    with postgres.running() as server:
        os.environ["PATH"] = f"{server.programs}:{path}"
        try:
            yield {"login_user": "rm", "login_unix_socket": str(server.directory)}
        finally:
            os.environ["PATH"] = path


def test_postgresql_databases(login: dict[str, Any], tmp_path: Path) -> None:
    done("postgresql_user", name="own'er", **login)
    given = {"name": "my shop", "owner": "own'er", **login}
    result = done("postgresql_db", template="template0", encoding="UTF-8", comment="a 'b' \\c", **given)
    assert result["executed_commands"][0].startswith('CREATE DATABASE "my shop" OWNER "own\'er" TEMPLATE')
    kept("postgresql_db", encoding="utf8", comment="a 'b' \\c", **given)
    done("postgresql_db", name="my shop", conn_limit="7", owner="rm", **login)
    assert "encoding is not supported" in refused("postgresql_db", encoding="LATIN1", **given)
    dump = f"{tmp_path}/dump.sql.gz"
    assert one("postgresql_db", name="my shop", state="dump", target=dump, **login)["changed"]
    assert os.path.getsize(dump) > 100
    done("postgresql_db", name="copy", **login)
    restored = one("postgresql_db", name="copy", state="restore", target=dump, **login)
    assert not restored["failed"], restored
    assert one("postgresql_db", name="copy", state="rename", target="other", **login)["changed"]
    done("postgresql_db", name="other", state="absent", **login)
    two = [step(n, "postgresql_db", name="twice", **login) for n in (1, 2)]
    assert [result["changed"] for result in run(*two, check=True)["results"]] == [True, False]
    assert "unable to connect" in refused("postgresql_db", **{**given, "login_port": 1})
    with pytest.raises(BadArgument, match="needs 'target'"):
        step(1, "postgresql_db", name="x", state="dump")


def test_postgresql_users(login: dict[str, Any]) -> None:
    given = {"name": 'jo"e', **login}
    result = done("postgresql_user", password="p'w\\d", role_attr_flags="CREATEDB,NOSUPERUSER", **given)
    assert "p'w" not in str(result)
    assert result["queries"] == ['CREATE USER "jo""e" WITH PASSWORD %(password)s CREATEDB NOSUPERUSER']
    kept("postgresql_user", password="p'w\\d", role_attr_flags="createdb", **given)
    kept("postgresql_user", password="other", no_password_changes=True, **given)
    done("postgresql_user", password="other", **given)
    done("postgresql_user", role_attr_flags="NOCREATEDB,CREATEROLE", conn_limit=3, comment="c", **given)
    done("postgresql_user", expires="2031-01-02 03:04:05+00", **given)
    done("postgresql_db", name="held", owner='jo"e', **login)
    assert "Unable to remove user" in refused("postgresql_user", state="absent", **given)
    assert not one("postgresql_user", state="absent", fail_on_user=False, **given)["changed"]
    done("postgresql_db", name="held", state="absent", **login)
    assert done("postgresql_user", state="absent", **given)["user_removed"]
    with pytest.raises(BadArgument, match="no attribute of a role"):
        step(1, "postgresql_user", name="x", role_attr_flags="FAST")


# -- MySQL --------------------------------------------------------------------------------------

# what MariaDB 10.11 answered; `made` and `grants` stand for what it keeps
MYSQL = r"""
sql=$(cat); echo "$sql" >> asked; cat "${1#--defaults-extra-file=}" > options
case "$sql" in
  *"SHOW DATABASES"*) printf 'mysql\nsys\n'; cat made 2>/dev/null; true;;
  *"SELECT VERSION"*) echo 10.11.18-MariaDB-0+deb12u1;;
  *"SELECT host FROM"*) [ -f account ] && echo '%'; true;;
  *"SELECT plugin"*) printf 'mysql_native_password\t%s\n' "$(cat account)";;
  *"SELECT ssl_type"*) cat tls;;
  *"SELECT CONCAT"*) case "$sql" in *"'new'"*) echo '*NEW';; *) echo '*OLD';; esac;;
  *"SHOW GRANTS"*) cat grants;;
  *"CREATE DATABASE"*) echo shop >> made;;
  *"DROP DATABASE"*) rm made;;
  *"CREATE USER"*) echo '*OLD' > account; cat created > grants
    case "$sql" in *"REQUIRE SSL"*) printf 'ANY\t\t\t\n' > tls;; esac;;
  *"ALTER USER"*) echo '*NEW' > account;;
  *"DROP USER"*) rm account;;
  *GRANT*|*REVOKE*) cat changed > grants;;
esac
"""
USAGE = "GRANT USAGE ON *.* TO `joe`@`%` IDENTIFIED BY PASSWORD '*OLD'\n"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The statements that the client was given."""
    (tmp_path / "mysql").write_text(f"#!/bin/sh\ncd {tmp_path}\n{MYSQL}")
    (tmp_path / "mysql").chmod(0o755)
    (tmp_path / "tls").write_text("\t\t\t\n")  # an account that needs nothing
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "asked"


def test_mysql_databases(asked: Path) -> None:
    given = {"name": "shop", "config_file": "/no", "login_user": "root", "login_password": 'a"b'}
    result = done("mysql_db", encoding="utf8mb4", collation="utf8mb4_bin", **given)
    statement = "CREATE DATABASE `shop` CHARACTER SET 'utf8mb4' COLLATE 'utf8mb4_bin'"
    assert (result["db"], result["executed_commands"]) == ("shop", [statement])
    assert 'password="a\\"b"' in (asked.parent / "options").read_text()
    done("mysql_db", state="absent", **given)
    assert "not found" in refused("mysql_db", state="dump", target="/x", **given)
    with pytest.raises(BadArgument, match="dump and import"):
        step(1, "mysql_db", name="all")


@pytest.mark.parametrize(
    ("module", "program", "given"),
    [
        ("mysql_db", "mysqldump", {"config_file": "/no"}),
        ("postgresql_db", "pg_dump", {}),
    ],
)
def test_a_dump_that_fails_keeps_the_former_one(
    asked: Path, module: str, program: str, given: dict[str, Any]
) -> None:
    folder, target = asked.parent, asked.parent / "dumps/all.sql"
    target.parent.mkdir()
    # each of another user's tries, in a directory of his: the name that a dump is written under, linked
    precious = folder / "precious"
    precious.write_text("not to be touched")
    for name in ("all.sql.rm-new", ".all.sql.rm-new"):
        (target.parent / name).symlink_to(precious)
    swap = f"rm -f {target.parent}/*.rm-new; ln -s {precious} {target}.rm-new 2>/dev/null\n"
    (folder / program).write_text(f"#!/bin/sh\n{swap}echo half; exit $(cat {folder}/code)\n")
    (folder / program).chmod(0o755)
    target.write_text("good")
    target.chmod(0o640)
    whole = {"name": "sys", "state": "dump", "target": str(target), **given}
    (folder / "code").write_text("3")
    refused(module, **whole)
    assert target.read_text() == "good"
    (folder / "code").write_text("0")
    assert one(module, **whole)["changed"]
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("half\n", 0o640)
    assert not target.is_symlink()
    assert precious.read_text() == "not to be touched"
    assert not (target.parent / ".all.sql.rm-new").exists()
    assert one(module, **{**whole, "target": "/dev/null"})["changed"]
    assert "does not exist" in refused(module, **{**whole, "target": f"{folder}/none/all.sql"})


def test_mysql_users(asked: Path) -> None:
    folder = asked.parent
    (folder / "created").write_text(USAGE + "GRANT ALL PRIVILEGES ON `shop`.* TO `joe`@`%`\n")
    given = {"name": "joe", "host": "%", "config_file": "/no"}
    result = done("mysql_user", password="old", priv="shop.*:ALL", **given)
    assert (result["msg"], result["password_changed"]) == ("User added", True)
    said = asked.read_text()
    assert "CREATE USER 'joe'@'%' IDENTIFIED BY 'old';\nGRANT ALL ON `shop`.* TO 'joe'@'%';" in said
    assert "old" not in str(result)
    done("mysql_user", password="new", **given)
    kept("mysql_user", password="old", update_password="on_create", **given)
    (folder / "changed").write_text(
        "GRANT SELECT, PROCESS ON *.* TO `joe`@`%` WITH GRANT OPTION\n"
        "GRANT SELECT (`b`, `a`), INSERT ON `shop`.`t` TO `joe`@`%`\n"
    )
    done("mysql_user", priv={"*.*": "SELECT,PROCESS,GRANT", "shop.t": "INSERT,SELECT(a, b)"}, **given)
    assert "REVOKE ALL ON `shop`.* FROM 'joe'@'%';" in asked.read_text()
    assert "GRANT PROCESS,SELECT ON *.* TO 'joe'@'%' WITH GRANT OPTION;" in asked.read_text()
    assert "GRANT INSERT,SELECT (a, b) ON `shop`.`t` TO 'joe'@'%';" in asked.read_text()
    done("mysql_user", state="absent", host_all=True, **{**given, "host": "localhost"})
    with pytest.raises(BadArgument, match="no privilege such as"):
        step(1, "mysql_user", name="x", priv="shop")


def test_what_connections_of_an_account_of_mysql_need(asked: Path) -> None:
    folder = asked.parent
    (folder / "created").write_text(USAGE)
    given = {"name": "joe", "host": "%", "config_file": "/no"}
    done("mysql_user", password="old", tls_requires={"SSL": None}, **given)
    assert "CREATE USER 'joe'@'%' IDENTIFIED BY 'old' REQUIRE SSL;" in asked.read_text()
    kept("mysql_user", tls_requires={"ssl": True}, **given)
    # as with Ansible: who names nothing takes back what was required
    assert one("mysql_user", **given)["msg"] == "TLS requires updated"
    assert "ALTER USER 'joe'@'%' REQUIRE NONE;" in asked.read_text()
    (folder / "tls").write_text("SPECIFIED\t\t/CN=o'ne\t/CN=two\n")
    kept("mysql_user", tls_requires={"SSL": None, "SUBJECT": "/CN=two", "ISSUER": "/CN=o'ne"}, **given)
    assert one("mysql_user", tls_requires={"X509": None}, **given)["changed"]
    assert one("mysql_user", tls_requires={"CIPHER": "A'B", "ISSUER": "/CN=i"}, **given)["changed"]
    assert "REQUIRE CIPHER 'A''B' AND ISSUER '/CN=i';" in asked.read_text()
    with pytest.raises(BadArgument, match="'tls_requires' has no 'TLS'"):
        step(1, "mysql_user", name="x", tls_requires={"TLS": None})
    with pytest.raises(BadArgument, match="'ISSUER' of 'tls_requires' must be text"):
        step(1, "mysql_user", name="x", tls_requires={"ISSUER": None})


@pytest.mark.parametrize(
    ("given", "configured", "mariadb", "mysql"),
    [
        ({"check_hostname": True, "ca_cert": "/ca.pem"}, "", "1", "VERIFY_IDENTITY"),
        ({"check_hostname": False, "ca_cert": "/ca.pem"}, "", None, "VERIFY_CA"),
        ({"check_hostname": True}, "ssl-ca = /ca.pem", "1", "VERIFY_IDENTITY"),
        ({"check_hostname": False}, "ssl_capath=/cas", None, "VERIFY_CA"),
        ({"check_hostname": True}, "", "1", None),
        ({"check_hostname": False}, "#ssl-ca=/ca.pem", "0", None),
        ({"ca_cert": "/ca.pem"}, "", None, None),
    ],
)
def test_whether_the_client_of_mysql_checks_the_name_of_the_server(
    asked: Path, given: dict[str, Any], configured: str, mariadb: str | None, mysql: str | None
) -> None:
    """The authority is checked wherever one is named, and MySQL's client gets no mode that it refuses."""
    config = asked.parent / "my.cnf"
    config.write_text(f"[client]\n{configured}\n")
    kept("mysql_user", name="joe", state="absent", config_file=str(config), **given)
    lines = (asked.parent / "options").read_text().splitlines()
    options = dict(line.split("=", 1) for line in lines if "=" in line)
    wanted = {"loose-ssl-verify-server-cert": mariadb, "loose-ssl-mode": mysql}
    assert {name: options.get(name) for name in wanted} == {
        name: value and f'"{value}"' for name, value in wanted.items()
    }


def test_what_the_client_of_mysql_refuses_shows_no_statement(asked: Path) -> None:
    script = "#!/bin/sh\necho \"CREATE USER 'x' IDENTIFIED BY 'secret'\" >&2\n"
    (asked.parent / "mysql").write_text(script + "echo 'ERROR 1045 (28000): Access denied' >&2; exit 1\n")
    said = refused("mysql_user", name="x", password="secret", config_file="/no")
    assert said.endswith("check login_user and login_password: ERROR 1045 (28000): Access denied")
    assert "secret" not in said
