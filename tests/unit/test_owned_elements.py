"""The owner of a job array does to some of its elements what he may do to all; nobody else does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.unit.test_privacy import ANN, BOB, cluster

ASKED: list[tuple[str, str, Any]] = [
    ("POST", "/update?array_tasks=0-3", {"comment": "x"}),
    ("POST", "/hold?array_tasks=0-3", {}),
    ("POST", "/release?array_tasks=0,2", {}),
    ("DELETE", "?array_tasks=4-5", None),
    ("POST", "/requeue?array_tasks=4-5", {}),
]


@pytest.mark.parametrize(("user", "status"), [(ANN, 200), ("op", 200), (BOB, 403)])
def test_some_elements_of_an_array_are_changed_by_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str, status: int
) -> None:
    with cluster(tmp_path, 0, monkeypatch) as (world, socket):
        world._submit(ANN, array="0-9", hold=True, traffic=None)
        array = world.jobs[ANN][-1]

        async def ask() -> list[int]:
            headers, told = {"Authorization": f"Bearer {user}"}, []
            way = aiohttp.UnixConnector(socket)
            async with aiohttp.ClientSession(connector=way, headers=headers) as session:
                for method, rest, body in ASKED:
                    url = f"http://rm/v1/jobs/{array}{rest}"
                    async with session.request(method, url, json=body) as response:
                        told.append(response.status)
            return told

        assert asyncio.run(ask()) == [status] * len(ASKED)
        assert (world.job(array).array.waiting != "0-9") is (status == 200)
