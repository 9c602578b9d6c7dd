"""The hooks of training frameworks: what a DDP model communicates is told. PyTorch itself is a stand-in here;
tests/e2e/test_frameworks.py trains with the real one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.agent_process import AGENTS

sys.path.insert(0, str(AGENTS))
import rm_hooks
import rm_iteration

Hook = Callable[[Any, Any], "Future"]


class Future:
    """`value` comes when the backend has sent."""

    def __init__(self) -> None:
        self._then: list[tuple[Callable[[Future], Any], Future]] = []
        self._value: Any = None

    def then(self, callback: Callable[[Future], Any]) -> Future:
        after = Future()
        self._then.append((callback, after))
        return after

    def value(self) -> Any:
        return self._value

    def arrive(self, value: Any) -> None:
        self._value = value
        for callback, after in self._then:
            after.arrive(callback(self))


class Bucket:
    """The number of one of `count`; what it holds is on no device."""

    is_cuda = False

    def __init__(self, number: int, count: int) -> None:
        self.number, self.count = number, count

    def index(self) -> int:
        return self.number

    def is_last(self) -> bool:
        return self.number == self.count - 1

    def buffer(self) -> Bucket:
        return self


class Model:
    """Calls hooks as DistributedDataParallel does."""

    process_group = "all ranks"

    def __init__(self) -> None:
        self.training = True
        self.hook: tuple[Any, Hook] | None = None
        self.before: list[Callable[..., None]] = []

    def register_comm_hook(self, state: Any, hook: Hook) -> None:
        if self.hook is not None:
            raise RuntimeError("register_comm_hook can only be called once.\nmore")
        self.hook = state, hook

    def register_forward_pre_hook(self, hook: Callable[..., None]) -> Handle:
        self.before.append(hook)
        return Handle(self.before, hook)

    def forward(self) -> None:
        for hook in self.before:
            hook(self, ())

    def begin(self, number: int, count: int) -> Future:
        """The backward pass has filled one of its buckets."""
        assert self.hook is not None
        state, hook = self.hook
        return hook(state, Bucket(number, count))


class Optimizer:
    def __init__(self) -> None:
        self.after: list[Callable[..., None]] = []

    def register_step_post_hook(self, hook: Callable[..., None]) -> Handle:
        self.after.append(hook)
        return Handle(self.after, hook)

    def step(self) -> None:
        for hook in self.after:
            hook(self, (), {})


class Handle:
    def __init__(self, among: list[Callable[..., None]], hook: Callable[..., None]) -> None:
        self.among, self.hook = among, hook

    def remove(self) -> None:
        self.among.remove(self.hook)


SENT: list[tuple[Any, int, Future]] = []  # by the all-reduce: state, bucket, and its future


def allreduce_hook(state: Any, bucket: Bucket) -> Future:
    SENT.append((state, bucket.number, Future()))
    return SENT[-1][2]


class Said:
    """An iteration client that notes what it is told."""

    active = True

    def __init__(self) -> None:
        self.words: list[str] = []

    def asks(self) -> bool:
        return False

    def start(self) -> None:
        self.words.append("start")

    def end(self) -> None:
        self.words.append("end")

    def communication_starts(self, timed: bool = True) -> None:
        self.words.append("communicates" if timed else "communicates, untimed")

    def communication_ends(self) -> None:
        self.words.append("over")


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("torch", "torch.nn", "torch.nn.parallel", "torch.distributed", "torch.distributed.algorithms")
    more = ("torch.distributed.algorithms.ddp_comm_hooks",)
    for name in (*names, *more, more[0] + ".default_hooks"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["torch.nn.parallel"], "DistributedDataParallel", Model, raising=False)
    monkeypatch.setattr(
        sys.modules[more[0] + ".default_hooks"], "allreduce_hook", allreduce_hook, raising=False
    )
    SENT.clear()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    made = Said()
    monkeypatch.setattr(rm_iteration, "_current", made)
    return made


def test_an_unchanged_loop_tells_when_it_communicates(said: Said) -> None:
    model, optimizer = Model(), Optimizer()
    rm_hooks.hook(model, optimizer)
    for _ in range(2):
        SENT.clear()
        model.forward()
        said.words.append("computes")
        futures = [model.begin(number, 3) for number in range(3)]
        for number in (1, 2, 0):  # a backend keeps no order
            said.words.append(f"arrives {number}")
            SENT[number][2].arrive([f"sum {number}"])
        assert [future.value() for future in futures] == ["sum 0", "sum 1", "sum 2"]
        assert {state for state, _, _ in SENT} == {"all ranks"}
        optimizer.step()
    once = ["start", "computes", "communicates", "arrives 1", "arrives 2", "arrives 0", "over", "end"]
    assert said.words == once * 2


def test_buckets_that_arrive_before_the_last_has_begun_do_not_end_it(said: Said) -> None:
    model = Model()
    rm_hooks.hook(model, Optimizer())
    for number in range(3):
        model.begin(number, 3)
        assert said.words == ["communicates"]
        SENT[number][2].arrive("sum")
    assert said.words == ["communicates", "over"]


def test_a_hook_of_the_loop_s_own_goes_on_to_reduce(said: Said) -> None:
    def own(state: str, bucket: Bucket) -> Future:
        return allreduce_hook(f"{state}, in half the bytes", bucket)

    model = Model()
    rm_hooks.hook(model, Optimizer(), comm_hook=("mine", own))
    model.begin(0, 1)
    SENT[0][2].arrive("sum")
    assert SENT[0][0] == "mine, in half the bytes"
    assert said.words == ["communicates", "over"]


def test_a_model_that_has_a_hook_keeps_it_and_somebody_is_told(
    said: Said, capsys: pytest.CaptureFixture[str]
) -> None:
    model, optimizer = Model(), Optimizer()
    model.register_comm_hook("mine", allreduce_hook)
    rm_hooks.hook(model, optimizer)
    assert model.hook == ("mine", allreduce_hook)
    assert capsys.readouterr().err == (
        "rm_hooks: register_comm_hook can only be called once; rm cannot see when the model communicates."
        " Give its hook to rm_hooks.hook instead, as comm_hook=(state, function).\n"
    )
    model.forward()
    optimizer.step()
    assert said.words == ["start", "end"]


def test_after_removal_the_model_trains_on_and_nothing_is_told(said: Said) -> None:
    model, optimizer = Model(), Optimizer()
    remove = rm_hooks.hook(model, optimizer)
    remove()
    model.forward()
    model.begin(0, 1)
    SENT[0][2].arrive("sum")
    optimizer.step()
    assert said.words == []


def test_outside_rm_only_the_loop_s_own_hook_is_registered(said: Said) -> None:
    said.active = False  # type: ignore[misc]
    plain, own = Model(), Model()
    rm_hooks.hook(plain, Optimizer())
    rm_hooks.hook(own, Optimizer(), comm_hook=("mine", allreduce_hook))
    assert (plain.hook, own.hook) == (None, ("mine", allreduce_hook))


def test_a_model_on_one_host_or_without_pytorch_is_only_timed(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Plain(Model):
        pass

    monkeypatch.setattr(sys.modules["torch.nn.parallel"], "DistributedDataParallel", type(None))
    model, optimizer = Plain(), Optimizer()
    rm_hooks.hook(model, optimizer)
    model.forward()
    optimizer.step()
    assert (model.hook, said.words) == (None, ["start", "end"])


def test_a_device_that_is_not_asked_for_is_not_waited_for(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bucket, "is_cuda", True)
    monkeypatch.setattr(sys.modules["torch"], "cuda", Device(said), raising=False)
    model, optimizer = Model(), Optimizer()
    rm_hooks.hook(model, optimizer)
    model.begin(0, 1)
    SENT[0][2].arrive("sum")
    optimizer.step()
    assert said.words == ["communicates, untimed", "event", "over", "end"]


def test_a_device_has_caught_up_before_it_asks_and_has_sent_when_it_is_over(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bucket, "is_cuda", True)
    monkeypatch.setattr(said, "asks", lambda: True)
    monkeypatch.setattr(sys.modules["torch"], "cuda", Device(said), raising=False)
    model, optimizer = Model(), Optimizer()
    rm_hooks.hook(model, optimizer)
    model.begin(0, 1)
    SENT[0][2].arrive("sum")
    optimizer.step()
    assert said.words == ["caught up", "communicates", "event", "has sent", "over", "end"]


class Device:
    """torch.cuda."""

    def __init__(self, said: Said) -> None:
        self.said = said

    def current_stream(self) -> Any:
        return _Waits(self.said, "caught up")

    def Event(self) -> Any:
        return _Waits(self.said, "has sent")


class _Waits:
    def __init__(self, said: Said, word: str) -> None:
        self.said, self.word = said, word

    def record(self) -> None:
        self.said.words.append("event")

    def synchronize(self) -> None:
        self.said.words.append(self.word)


def test_reports_carry_how_long_it_communicated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = rm_iteration.Iterations({"RM_REPORTS": str(tmp_path / "reports")})
    monkeypatch.setattr(rm_iteration, "_current", mine)
    model, optimizer = Model(), Optimizer()
    rm_hooks.hook(model, optimizer)
    model.forward()
    model.begin(0, 1)
    SENT[0][2].arrive("sum")
    optimizer.step()
    mine.close()
    (line,) = (tmp_path / "reports").read_text().splitlines()
    assert 0 <= json.loads(line)[5] <= json.loads(line)[3]
