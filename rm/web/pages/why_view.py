"""Why a job waits, or runs where it runs: the answer of `rmx why`, and the job's story."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rm.web.pages.queue_view import Row, row
from rm.web.pages.text import Look, duration, look, moment, shown

VERDICTS_MOST = 100
HISTORY_MOST = 30


@dataclass(frozen=True, slots=True)
class Why:
    """`columns` are the scores' names, `verdicts` (host, scores, refusal or "")."""

    job: Row
    reasons: tuple[tuple[str, str, str], ...]  # code, sentence, numbers
    columns: tuple[str, ...]
    verdicts: tuple[tuple[str, tuple[str, ...], str], ...]
    verdicts_left_out: int
    score: str
    schedules: tuple[str, ...]
    unmatched: tuple[int, ...]
    history: tuple[tuple[str, str], ...]


def why(job: Mapping[str, Any], answer: Mapping[str, Any], now_us: int, look: Look = look) -> Why:
    verdicts = answer["verdicts"]
    names = list(dict.fromkeys(name for verdict in verdicts for name, _ in verdict["scores"]))
    alignment = answer.get("alignment") or {}
    return Why(
        job=row(job, now_us, look),
        reasons=tuple(
            (shown(r["code"]), shown(r["message"], 500), _numbers(r.get("numbers") or {}))
            for r in answer["reasons"]
        ),
        columns=tuple(shown(name).replace("_", " ") for name in names),
        verdicts=tuple(_verdict(verdict, names) for verdict in verdicts[:VERDICTS_MOST]),
        verdicts_left_out=max(0, len(verdicts) - VERDICTS_MOST),
        score=f"{alignment['score']:.6g}" if alignment else "",
        schedules=tuple(_schedule(s) for s in alignment.get("schedules", ())),
        unmatched=tuple(alignment.get("unmatched", ())),
        history=tuple((moment(at), shown(what, 300)) for at, what in job["history"][-HISTORY_MOST:]),
    )


def _numbers(numbers: Mapping[str, Any]) -> str:
    return ", ".join(f"{shown(name)} = {shown(value)}" for name, value in numbers.items())


def _verdict(verdict: Mapping[str, Any], names: Sequence[str]) -> tuple[str, tuple[str, ...], str]:
    scores = dict(verdict["scores"])
    refused = verdict["refused"]
    told = f"({shown(refused['code'])}) {shown(refused['message'], 500)}" if refused else ""
    return (
        shown(verdict["host"]),
        tuple(f"{scores[name]:.6g}" if name in scores else "–" for name in names),
        told,
    )


def _schedule(schedule: Mapping[str, Any]) -> str:
    role = "is the reference" if schedule["reference"] else f"starts {duration(schedule['shift_us'])} later"
    idle = f", with {duration(schedule['inject_us'])} of idle time" if schedule["inject_us"] else ""
    return f"Job {schedule['job']} {role}, an iteration every {duration(schedule['period_us'])}{idle}."
