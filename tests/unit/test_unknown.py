"""What a job names that the cluster has not."""

import pytest

from rm.core.model.unknown import unknown_names
from rm.errors import Refusal
from tests.builders import host, spec

HOSTS = {
    h.name: h
    for h in (
        host("gpu01", "north", gpus=1, gpu_model="NVIDIA A100-SXM4", partitions=("long", "short")),
        host("gpu02", "north", gpus=1, gpu_model="Tesla V100", partitions=("long",)),
        host("cpu1", "south"),
    )
}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"hosts_only": ("gpu01", "gpu03")}, ["there is no host gpu03; there are: gpu[01-02],cpu1"]),
        ({"hosts_excluded": ("foo",)}, ["there is no host foo; there are: gpu[01-02],cpu1"]),
        ({"partition": "long,debug"}, ["there is no partition debug; there are: long, short"]),
        ({"zone": "east"}, ["there is no zone east; there are: north, south"]),
        ({"gpu_type": "h100"}, ["there is no GPU of type h100; there are: NVIDIA A100-SXM4, Tesla V100"]),
        (
            {"gpu_type": "h100", "zone": "east"},
            [
                "there is no zone east; there are: north, south",
                "there is no GPU of type h100; there are: NVIDIA A100-SXM4, Tesla V100",
            ],
        ),
        ({"gpu_type": "a100", "partition": "short", "zone": "south", "hosts_only": ("cpu1",)}, []),
        ({"gpu_type": "nvidia_a100-sxm4"}, []),  # as sinfo shows it
    ],
)
def test_each_unknown_name_is_told_with_those_that_there_are(
    asked: dict[str, object], said: list[str]
) -> None:
    assert [one.said for one in unknown_names(spec(**asked), HOSTS)] == said


def test_a_partition_that_has_rules_and_no_hosts_is_there() -> None:
    (one,) = unknown_names(spec(partition="big"), HOSTS, ruled={"big", "long"})
    assert one == (
        Refusal.NEVER_FITS,
        "there is no host in partition big; partitions with hosts: long, short",
    )
    assert unknown_names(spec(partition="big,long"), HOSTS, ruled={"big"}) == [], "it may run in the other"
    none, empty = unknown_names(spec(partition="big,debug"), HOSTS, ruled={"big"})
    assert none.said == "there is no partition debug; there are: long, short"
    assert empty.said.startswith("there is no host in partition big;")
    (one,) = unknown_names(spec(partition="big"), {"cpu1": HOSTS["cpu1"]}, ruled={"big"})
    assert one.said == "there is no host in partition big"


def test_a_cluster_that_is_not_found_out_may_have_any_gpu_and_an_empty_one_anything() -> None:
    fresh = {**HOSTS, "new": host("new", "north", cpus=0)}
    assert unknown_names(spec(gpu_type="h100"), fresh) == []
    assert unknown_names(spec(hosts_only=("x",), partition="p", zone="z"), {}) == []


def test_of_many_names_the_first_are_told() -> None:
    many = {f"n{i}": host(f"n{i}", f"z{i}") for i in range(40)}
    strange = tuple(f"x{i}" for i in range(10))
    named, zone = unknown_names(spec(hosts_only=strange, zone="east"), many)
    listed = " or ".join((*strange[:8], "2 more"))
    assert named == (Refusal.UNKNOWN_HOST, f"there is no host {listed}; there are: n[0-39]")
    assert zone.said == "there is no zone east; there are: z0, z1, z2, z3, z4, z5, z6, z7, 32 more"
