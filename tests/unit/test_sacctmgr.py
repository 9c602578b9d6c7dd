"""`sacctmgr`: what Slurm's scripts ask and change, against the accounts and QOS of the fake daemon."""

import pytest

from tests.fake_service import Daemon
from tests.slurm_program import Slurm


@pytest.fixture
def filled(slurm: Slurm, daemon: Daemon) -> Slurm:
    for words in (
        "add account physics,chess Description=groups Organization=uni Fairshare=3",
        "add account pawns parent=chess MaxJobs=5 GrpTRES=cpu=8,gres/gpu=2,mem=10G,node=3",
        "add qos urgent priority=10 MaxWall=1-00:00:00 MaxTRESPU=gres/gpu=4 GraceTime=00:01:00",
        "add qos batch PreemptMode=Suspend",
        "modify qos urgent set Preempt=batch UsageFactor=2.5",
        "create user ann,bob Account=physics,pawns DefaultAccount=pawns fairshare=7",
    ):
        done = slurm("sacctmgr", "-i", *words.split())
        assert done.code == 0, (words, done.err)
    return slurm


def shown(slurm: Slurm, *words: str) -> list[str]:
    done = slurm("sacctmgr", "-nP", "show", *words)
    assert done.code == 0, done.err
    return done.out.splitlines()


def test_what_was_added_is_shown(filled: Slurm) -> None:
    assert shown(filled, "account", "format=account,descr,org") == [
        "physics|groups|", "chess|groups|", "pawns||"
    ]  # fmt: skip
    columns = "format=Account,User,Fairshare,MaxJobs,GrpTRES,ParentName"
    assert shown(filled, "assoc", "where", "account=pawns", columns) == [
        "pawns||1|5|cpu=8,gres/gpu=2,mem=10G,node=3|chess", "pawns|ann|7|||", "pawns|bob|7|||"
    ]  # fmt: skip
    assert shown(filled, "user", "ann") == ["ann|pawns|None"]
    assert shown(filled, "user", "name=bob", "withassoc", "format=user,account,defaultaccount") == [
        "bob|pawns|pawns", "bob|physics|pawns"
    ]  # fmt: skip
    columns = "format=name,priority,maxwall,maxtrespu,gracetime,preempt,preemptmode,usagefactor"
    assert shown(filled, "qos", columns) == [
        "urgent|10|1-00:00:00|gres/gpu=4|00:01:00|batch|requeue|2.500000",
        "batch|0|||00:00:00||suspend|1.000000",
    ]  # fmt: skip


def test_the_table_has_headers_and_widths(filled: Slurm) -> None:
    words = ("list", "account", "format=Account%12,Share%5", "name=chess")
    assert filled("sacctmgr", *words).out.splitlines() == [
        "     Account Share ", "------------ ----- ", "       chess     3 "
    ]  # fmt: skip
    assert filled("sacctmgr", "-p", "show", "qos", "batch", "format=name").out == "Name|\nbatch|\n"


def test_modify_and_delete_change_what_they_name_alone(filled: Slurm) -> None:
    def do(text: str) -> None:
        done = filled("sacctmgr", "-i", *text.split())
        assert done.code == 0, (text, done.err)

    do("modify account where name=pawns set MaxJobs=-1 GrpTRES=cpu=-1")
    do("modify user ann where account=physics set MaxJobs=2 fairshare=9")
    do("modify user ann set DefaultAccount=physics")
    assert shown(filled, "assoc", "format=account,user,share,maxjobs,grptres", "account=pawns,physics") == [
        "physics||3||", "physics|ann|9|2|", "physics|bob|7||",
        "pawns||1||gres/gpu=2,mem=10G,node=3", "pawns|ann|7||", "pawns|bob|7||",
    ]  # fmt: skip
    do("delete user name=ann account=physics")
    do("delete user bob")
    do("delete user ann")
    do("remove account pawns")
    do("delete qos where name=urgent")
    assert shown(filled, "assoc", "format=account,user") == ["root|", "physics|", "chess|"]
    assert shown(filled, "qos", "format=name") == ["batch"]


def test_set_may_stand_before_where(filled: Slurm) -> None:
    done = filled(
        "sacctmgr", "-i", "modify", "user", "set", "fairshare=4", "where", "name=ann", "account=pawns"
    )
    assert done.code == 0, done.err
    assert shown(filled, "assoc", "user=ann,bob", "format=account,user,share") == [
        "physics|ann|7", "physics|bob|7", "pawns|ann|4", "pawns|bob|7"
    ]  # fmt: skip


def test_what_is_there_is_not_added_again_and_stays_as_it_is(filled: Slurm) -> None:
    done = filled("sacctmgr", "-i", "add", "user", "ann", "account=physics", "fairshare=1")
    assert (done.code, done.out) == (1, "")
    assert "user ann is in physics already" in done.err
    assert "Nothing new added" in done.err
    assert shown(filled, "assoc", "user=ann", "account=physics", "format=share") == ["7"]
    done = filled("sacctmgr", "-i", "add", "account", "physics,maths", "fairshare=2")
    assert done.code == 0
    assert "this account 'physics' already exists" in done.err
    assert shown(filled, "assoc", "account=physics,maths", "format=account,share")[::3] == [
        "physics|3", "maths|2"
    ]  # fmt: skip
    assert filled("sacctmgr", "-i", "add", "qos", "urgent", "priority=1").code == 1
    assert shown(filled, "qos", "urgent", "format=priority") == ["10"]


def test_words_for_what_rm_does_not_keep(filled: Slurm) -> None:
    assert shown(filled, "user", "withdeleted", "format=user") == ["ann", "bob"]
    assert shown(filled, "cluster", "elsewhere") == []
    assert filled("sacctmgr", "-i", "modify", "account", "physics", "set", "GrpTRESMins=billing=60").code == 0
    assert shown(filled, "assoc", "account=physics", "format=grptresmins")[0] == "billing=60"


def test_without_immediate_it_asks_as_slurm_does(filled: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    done = filled("sacctmgr", "delete", "qos", "batch")
    assert done.code == 0
    assert done.out.endswith("(N/y):  Changes Discarded\n")
    assert shown(filled, "qos", "batch", "format=name") == ["batch"]
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert filled("sacctmgr", "modify", "qos", "batch", "set", "priority=4").code == 0
    assert shown(filled, "qos", "batch", "format=priority") == ["4"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("show", "Name what to do"),
        ("show runawayjobs", "rm knows no `sacctmgr show runawayjobs`"),
        ("add cluster x", "rm knows no `sacctmgr add cluster`"),
        ("dump x", "rm knows no `sacctmgr dump x`"),
        ("show account format=colour", "There is no field 'colour'"),
        ("show account format=account%--5", "The width of account is '--5'"),
        ("show account format=account%²", "The width of account is '²'"),
        (f"show account format=account%{'9' * 5000}", "The width of account is '9999"),
        ("show user where adminlevel=admin", "does not choose by 'adminlevel'"),
        ("-i add account", "Name the account"),
        ("-i add user ann", "Name an account for ann"),
        ("-i add account x GrpWall=5", "rm sets no 'grpwall' of accounts"),
        ("-i add account x GrpTRES=bb/buffer=5", "limits what rm does not"),
        ("-i modify account physics set GrpTRESMins=cpu=1000", "limits what rm does not"),
        ("-i modify qos batch set MaxTRESMins=gres/gpu=5,cpu=9", "limits what rm does not"),
        ("show user withcoord", "does not know the word 'withcoord'"),
        ("show assoc bob", "is no number of an association"),
        ("-i modify qos batch set priority=high", "is no whole number"),
        ("-i modify qos batch set", "The request changes nothing"),
        ("-i modify account physics set qos+=batch", "changes a part of a list"),
    ],
)
def test_what_rm_does_not_do_is_refused(filled: Slurm, words: str, said: str) -> None:
    done = filled("sacctmgr", *words.split())
    assert done.code == 1
    assert said in done.err
    assert done.err.count("\n") == 1
