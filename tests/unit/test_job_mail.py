"""--mail-type: what a job's events are worth, and how the mails are sent."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from email.message import EmailMessage
from email.utils import getaddresses
from typing import Any

import pytest
from msgspec import structs

from rm.bootstrap.choices import letters_of
from rm.config import Config
from rm.core.alerts.channel import NotTold
from rm.core.jobs import events as ev
from rm.core.jobs.actions import Intent, Mail
from rm.core.jobs.state import rebuild
from rm.core.model.job import Job
from rm.daemon.execution.mailing import NOWHERE, Mailer
from rm.errors import ConfigError
from rm.mail_events import is_address, mailbox, parse
from tests.examples import examples
from tests.fakes import Inbox
from tests.unit.test_job_arrays import Cluster

HOUR_US = 3_600_000_000


class Mailed(Cluster):
    """A cluster that notes the mails."""

    def __init__(self) -> None:
        self.mails: list[str] = []
        self.due: list[Mail] = []
        super().__init__()

    def do(self, *events: ev.Event) -> Any:
        out = super().do(*events)
        mails = [i.action for i in out.intents if isinstance(i.action, Mail)]
        self.due += mails
        self.mails += [f"{mail.to}: {mail.subject}" for mail in mails]
        return out

    def start(self, job: int) -> Job:
        record = self.state.jobs[job]
        self.do(ev.TasksStarted(job, record.attempt, "h1", self.now_us, tuple(t.rank for t in record.tasks)))
        return self.state.jobs[job]

    def told(self) -> list[str]:
        told, self.mails = self.mails, []
        return told


def test_a_job_tells_of_its_start_its_requeue_and_its_end() -> None:
    cluster = Mailed()
    job = cluster.submit("", name="x", mail_events=parse("all"), mail_user="ann@x.test")
    assert cluster.told() == []
    cluster.start(job)
    assert cluster.told() == ["ann@x.test: Job_id=1 Name=x Began, Queued time 0:00"]
    cluster.do(ev.RequeueRequested(job, "ann"))
    cluster.end(cluster.state.jobs[job])
    assert cluster.told() == ["ann@x.test: Job_id=1 Name=x Requeued"]
    cluster.end(cluster.start(job), code=3)
    assert cluster.told() == [
        "ann@x.test: Job_id=1 Name=x Began, Queued time 0:00",
        "ann@x.test: Job_id=1 Name=x Failed, Run time 0:00, FAILED, ExitCode 3",
    ]


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ("END", ["alice: Job_id=1 Name=test Failed, Run time 0:00, TIMEOUT, ExitCode 0"]),
        ("FAIL,END", ["alice: Job_id=1 Name=test Failed, Run time 0:00, TIMEOUT, ExitCode 0"]),
        ("TIME_LIMIT", ["alice: Job_id=1 Name=test Reached time limit, Run time 0:00"]),
        ("BEGIN", ["alice: Job_id=1 Name=test Began, Queued time 0:00"]),
        ("REQUEUE", []),
    ],
)
def test_only_what_was_asked_for_is_told(events: str, said: list[str]) -> None:
    cluster = Mailed()
    job = cluster.submit("", name="test", mail_events=parse(events))
    attempt = cluster.state.jobs[job].attempt
    ended = ev.TaskExited(job, attempt, "h1", 0, 0, 15, cluster.now_us, cluster.now_us, why="timeout")
    cluster.do(ended)  # its start comes with its end, as of a short job
    assert cluster.told() == said
    cluster.do(ended)
    assert cluster.told() == []


def test_shares_of_the_time_limit_are_told_once_each_also_by_a_new_daemon() -> None:
    cluster = Mailed()
    job = cluster.submit(
        "", name="x", mail_events=parse("TIME_LIMIT_50,TIME_LIMIT_90"), time_limit_us=HOUR_US
    )
    started_us = cluster.start(job).started_us
    assert started_us is not None
    for share, later in ((50, 90), (90, None)):
        at_us = started_us + HOUR_US * share // 100
        assert cluster.cycle.next_due_us() == at_us
        cluster.now_us = at_us - 10
        cluster.do(ev.Tick())
        assert cluster.told() == [f"alice: Job_id=1 Name=x Reached {share}% of time limit"]
        state = cluster.state
        again = rebuild(state.jobs.values(), state.hosts.values(), (), {}, 9, 9, cluster.now_us)
        marks = {} if later is None else {job: (started_us + HOUR_US * later // 100, later)}
        assert again.marks == state.marks == marks


def test_an_array_tells_of_all_elements_together_unless_it_is_asked_for_each() -> None:
    together, each = Mailed(), Mailed()
    together.submit("0-2", name="x", mail_events=parse("BEGIN,END"))
    together.run_all()
    assert together.told() == [
        "alice: Job_id=1_* Name=x Began, Queued time 0:00",
        "alice: Job_id=1_* Name=x Ended, Run time 0:00, COMPLETED, ExitCode 0",
    ]
    each.submit("0-2", name="x", mail_events=parse("END,ARRAY_TASKS"))
    each.run_all()
    assert [line.split()[1] for line in each.told()] == ["Job_id=1_0", "Job_id=1_1", "Job_id=1_2"]


def test_a_dependency_that_can_never_be_fulfilled_is_told() -> None:
    cluster = Mailed()
    first = cluster.submit("")
    cluster.submit("", name="x", dependency=f"afterok:{first}", mail_events=parse("ALL"))
    cluster.end(cluster.state.jobs[first], code=1)
    assert cluster.told() == ["alice: Job_id=2 Name=x Invalid dependency, CANCELLED"]


class Server:
    """Fails so often before it takes a mail."""

    def __init__(self, *failures: NotTold) -> None:
        self.failures = list(failures)
        self.sent: list[tuple[str, str, str]] = []

    def send_letter(self, to: str, subject: str, text: str, name: str) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.sent.append((to, subject, name))


MAIL = Intent(7, Mail(1, 1, "", "ann", "Job_id=1 Name=x Ended"))


@pytest.mark.parametrize(
    ("failures", "outcome"),
    [
        ((), ""),
        ((NotTold("busy"), NotTold("busy")), ""),
        ((NotTold("refused", again=False),), "refused"),
        (tuple(NotTold("busy") for _ in range(5)), "busy"),
    ],
)
def test_a_mail_is_tried_again_and_its_outcome_told(failures: tuple[NotTold, ...], outcome: str) -> None:
    server, heard = Server(*failures), Inbox()
    mailer = Mailer(server, "c1", pause_s=0.001)
    assert isinstance(MAIL.action, Mail)
    mailer.tell(MAIL, MAIL.action, heard)
    assert heard.wait(lambda _: True) == outcome
    mailer.close()
    name = "c1 7 Job_id=1 Name=x Ended"
    assert server.sent == ([] if outcome else [("ann", "[c1] Job_id=1 Name=x Ended", name)])


def test_a_mail_that_is_refused_for_now_delays_no_other() -> None:
    """The pauses before one user's mail were waited for by everybody's."""

    class Choosy(Server):
        def send_letter(self, to: str, subject: str, text: str, name: str) -> None:
            if to == "greylisted":
                raise NotTold("busy")
            super().send_letter(to, subject, text, name)

    server, heard = Choosy(), Inbox()
    mailer = Mailer(server, "c1", pause_s=HOUR_US)
    assert isinstance(MAIL.action, Mail)
    for to in ("greylisted", "ann"):
        mail = replace(MAIL.action, to=to)
        mailer.tell(replace(MAIL, action=mail), mail, lambda outcome, to=to: heard((to, outcome)))
    assert heard.wait(lambda _: True) == ("ann", "")
    mailer.close()


def test_a_user_with_very_many_mails_delays_the_others_by_one() -> None:
    """An array of 100,000 elements that are each mailed of kept everybody's mails back for hours."""
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Server):
        def send_letter(self, to: str, subject: str, text: str, name: str) -> None:
            begun.set()
            go_on.wait(60)
            super().send_letter(to, subject, text, name)

    server, heard = Slow(), Inbox()
    mailer = Mailer(server, "c1")
    assert isinstance(MAIL.action, Mail)
    for number, user in enumerate(["mallory"] * 100 + ["ann"]):
        mail = replace(MAIL.action, to=f"{user}{number}", user=user)
        mailer.tell(replace(MAIL, action=mail), mail, lambda outcome, user=user: heard(user))
        if number == 0:
            assert begun.wait(60)
    go_on.set()
    heard.wait(lambda user: user == "ann")
    mailer.close()
    assert [to for to, _, _ in server.sent].index("ann100") <= 2


def test_of_a_users_mails_a_bounded_number_waits(caplog: pytest.LogCaptureFixture) -> None:
    """100,000 waiting jobs that are cancelled are as many mails, faster than a mail server takes them."""
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Server):
        def send_letter(self, to: str, subject: str, text: str, name: str) -> None:
            begun.set()
            go_on.wait(60)
            raise NotTold("no such mailbox", again=False)

    heard = Inbox()
    mailer = Mailer(Slow(), "c1", most_waiting=100)
    assert isinstance(MAIL.action, Mail)

    def tell(user: str) -> None:
        assert isinstance(MAIL.action, Mail)
        mail = replace(MAIL.action, user=user)
        mailer.tell(replace(MAIL, action=mail), mail, lambda outcome: heard((user, outcome)))

    for user in ["mallory"] * 150 + ["ann"]:
        tell(user)
    assert begun.wait(60)
    assert heard.items == [("mallory", "100 mails of mallory wait already")] * 50
    assert 0 < sum("100 mails of mallory wait already" in text for text in caplog.messages) < 50
    go_on.set()
    heard.wait(lambda _: len(heard.items) == 151)
    tell("mallory")  # who has none that wait any more
    heard.wait(lambda _: len(heard.items) == 152)
    assert heard.items[-1] == ("mallory", "no such mailbox")
    mailer.close()
    assert 0 < len(caplog.records) < 50


def test_a_job_is_mailed_of_for_its_user() -> None:
    cluster = Mailed()
    cluster.start(cluster.submit("", name="x", mail_events=parse("BEGIN"), mail_user="boss@example.org"))
    assert {mail.user for mail in cluster.due} == {"alice"}


def test_without_a_channel_the_story_says_so() -> None:
    heard: list[str] = []
    assert isinstance(MAIL.action, Mail)
    Mailer(None, "c1").tell(MAIL, MAIL.action, heard.append)
    assert heard == [NOWHERE]


@pytest.mark.parametrize(
    ("channel", "sentence"),
    [
        ({"name": "other", "mail_to": ("a@x",), "mail_from": "rm@x"}, "there is no"),
        ({"name": "post", "command": ("/bin/true",)}, "has no mail_to"),
    ],
)
def test_the_channel_must_be_one_of_mail(channel: dict[str, Any], sentence: str) -> None:
    config = Config()
    config = structs.replace(
        config,
        jobs=structs.replace(config.jobs, mail="post"),
        alerts=structs.replace(config.alerts, channel=(channel,)),
    )
    with pytest.raises(ConfigError, match=sentence):
        letters_of(config)


def test_whoever_is_mailed_is_one_address_to_the_mail_library() -> None:
    """Other forms end in an exception of the library's, whose traceback anybody could fill the log with."""
    chance, taken = random.Random(20), 0
    letters = [chr(code) for code in range(1, 0x250)] + [*"().:[]=?!%@"] * 20
    for _ in range(examples(20_000)):
        address = "".join(chance.choices(letters, k=chance.randint(1, 4)))
        address += chance.choice(("", "@a.b", "@a..b", "@a-", "@a.b."))
        if is_address(address):
            taken += 1
            message = EmailMessage()
            message["To"] = mailbox(address)
            found = message["To"].addresses
            assert [(one.addr_spec, one.display_name) for one in found] == [(mailbox(address), "")]
            assert getaddresses([message["To"]]) == [("", mailbox(address))]  # as smtplib reads it
    assert taken > 100


@pytest.mark.parametrize(
    "address", ["(a)", ".:", "a..", ".a@b", "a@b..", "a@-b", "=?utf-8?q?a=2Cb?=@c", "a@" + "b" * 254]
)
def test_what_is_no_plain_address_is_refused(address: str) -> None:
    assert not is_address(address)


def test_the_dot_that_ends_a_domain_is_not_mailed() -> None:
    cluster = Mailed()
    cluster.start(cluster.submit("", name="x", mail_events=parse("BEGIN"), mail_user="ann@example.org."))
    assert [mail.to for mail in cluster.due] == ["ann@example.org"]


@pytest.mark.parametrize(
    "address",
    ["ann", "o'neil+rm@x-1.org", "SRS0=ab=x.org=ann@y.org", "jürgen@x.org", "user@example.com.",
     "first..last@docomo.ne.jp", "first.@docomo.ne.jp"],
)  # fmt: skip
def test_plain_addresses_are_taken(address: str) -> None:
    assert is_address(address)
