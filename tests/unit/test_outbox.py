"""What is open for a host: under way once, waiting for an exit, sent again."""

from rm.core.jobs.actions import Collect, Discard, Intent
from rm.daemon.execution.outbox import Open, Outbox


def collection(outbox: Outbox, number: int = 1) -> Open:
    made = Open(Intent(number, Collect(1, 1, "h1", ())), None)
    outbox.put([made])
    return made


def test_it_is_under_way_once_and_not_after_it_has_settled() -> None:
    outbox = Outbox()
    entry = collection(outbox)
    assert (outbox.begin(entry), outbox.begin(entry)) == (True, False)
    outbox.rest(entry)
    assert outbox.begin(entry)
    outbox.rest(entry)
    outbox.remove(entry.intent)
    assert not outbox.begin(entry)


def test_what_waits_for_an_exit_is_not_repeated_before_it() -> None:
    outbox = Outbox()
    entry, other = collection(outbox), Open(Intent(2, Discard(2, 1, "h1")), None)
    outbox.put([other])
    outbox.begin(entry)
    assert outbox.rest_until_exit(entry)
    assert (outbox.plan_repeat("h1"), outbox.plan_repeat("h1")) == (True, False)
    assert outbox.begin_repeat("h1") == [other]
    assert outbox.exited("h1", 1, 1) == [entry]


def test_what_its_exit_brought_back_is_repeated_where_it_could_not_be_sent() -> None:
    """Another daemon may lead at that moment: the exit does not come a second time."""
    outbox = Outbox()
    entry = collection(outbox)
    outbox.begin(entry)
    assert outbox.rest_until_exit(entry)
    assert outbox.exited("h1", 1, 1) == [entry]
    assert outbox.begin(entry)
    outbox.rest(entry)
    assert outbox.begin_repeat("h1") == [entry]


def test_an_exit_that_comes_while_it_is_under_way_is_not_waited_for() -> None:
    outbox = Outbox()
    entry = collection(outbox)
    outbox.begin(entry)
    outbox.exited("h1", 1, 1)
    assert not outbox.rest_until_exit(entry)
    assert outbox.begin(entry)
    assert outbox.rest_until_exit(entry)  # the next one is


def test_a_host_that_is_removed_leaves_nothing_open() -> None:
    outbox = Outbox()
    second, first = collection(outbox, 2), collection(outbox, 1)
    assert outbox.forget("h1") == [first, second]
    assert (outbox.of("h1"), outbox.find(first.intent)) == ([], None)
