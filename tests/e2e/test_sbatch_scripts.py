"""Batch scripts as they stand at labs, unchanged: each says in its `#=` lines what must come of it.

state STATE [COUNT]   how it ends; the count of the elements of an array
code CODE             as sacct shows it
file NAME             where the lines are to be found, %j being the job; without it slurm-%j.out
line REGEX            a whole line there
once REGEX            the same, and one such line only
refused REGEX         sbatch says so and takes no job
submit COMMAND        what prints the job's id, where `sbatch --parsable NAME` is not enough
needs PROGRAM         without which the script is skipped
forward NAME          the file with the address of its server: `rmx forward` brings the page
                      here, and then the job is cancelled
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.cluster import LONG_POLL_S, RMX, WAIT_S, Cluster, until
from tests.e2e.conftest import MakeCluster
from tests.shared_directory import share

pytestmark = pytest.mark.lab
SCRIPTS = Path(__file__).with_name("sbatch")
# those that run until somebody has looked come first: others wait for their hosts
TEXTS = {path.name: path.read_text() for path in SCRIPTS.glob("*.sh")}
NAMES = sorted(TEXTS, key=lambda name: ("\n#= forward" not in TEXTS[name], name))
FEATURES = {"z1h1": ["nvme", "slow"], "z1h2": ["nvme", "big"], "z1h3": ["slow"]}
PATIENCE_S = 8 * WAIT_S  # some thirty jobs share three hosts, and some submissions wait for several of them


@dataclass(frozen=True)
class Expected:
    """What the `#=` lines of a script say."""

    lines: dict[str, list[str]]

    @classmethod
    def of(cls, script: Path) -> Expected:
        found: dict[str, list[str]] = {}
        for word, rest in re.findall(r"^#= (\w+) (.*)$", script.read_text(), re.M):
            found.setdefault(word, []).append(rest)
        words = {"state", "code", "file", "line", "once", "refused", "submit", "needs", "forward"}
        unknown = set(found) - words
        assert not unknown, (script, unknown)
        assert {"state", "refused"} & set(found), f"{script} expects nothing"
        return cls(found)

    def one(self, word: str, default: str) -> str:
        return self.lines.get(word, [default])[0]

    @property
    def missing(self) -> str:
        """The program that it needs, if this machine has none; else empty."""
        program = self.one("needs", "sh")
        return "" if shutil.which(program) else program

    @property
    def patterns(self) -> list[str]:
        return self.lines.get("line", []) + self.lines.get("once", [])


VFS = """mkdir -p /etc/containers; cat >/etc/containers/storage.conf <<'X'
[storage]
driver = "vfs"
runroot = "/run/containers/storage"
graphroot = "/var/lib/containers/storage"
X
"""  # a lab host's disk is an overlay, on which podman's usual driver cannot work as root


class Login:
    """A shell with Slurm's commands, in a directory that all hosts have."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster, self.directory = cluster, directory
        shutil.copytree(SCRIPTS, directory, dirs_exist_ok=True)
        for host in cluster.hosts():
            share(cluster.lab, host, directory)
            assert cluster.lab.exec(host, ["sh", "-ec", VFS]).returncode == 0
        cluster.rmx("slurm-shims", str(directory / "shims"))
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SLURM", "SBATCH"))}
        path = f"{directory / 'bin'}:{directory / 'shims'}:{os.environ['PATH']}"
        self.environment = {**ours, "RM_DAEMON__SOCKET": cluster.socket, "PATH": path}

    def __call__(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line], capture_output=True, text=True, timeout=PATIENCE_S,
            cwd=self.directory, env=self.environment,
        )  # fmt: skip

    def submit(self, name: str) -> subprocess.CompletedProcess[str]:
        return self(Expected.of(SCRIPTS / name).one("submit", f"sbatch --parsable {name}"))

    def page(self, job: str, name: str) -> str:
        """What the job's server says to a browser on this machine."""
        file = self.directory / name.replace("%j", job)
        url = urlsplit(
            until(lambda: file.exists() and file.read_text().strip(), f"{file} is written", PATIENCE_S)
        )
        words = [RMX, "--socket", self.cluster.socket, "forward", job, f"{url.port}:0"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as forward:
            try:
                assert forward.stdout is not None
                near = re.search(r"127\.0\.0\.1:(\d+)", forward.stdout.readline())
                assert near is not None
                address = f"http://127.0.0.1:{near[1]}{url.path}?{url.query}"

                def shown() -> str:
                    try:
                        with urllib.request.urlopen(address, timeout=PATIENCE_S) as page:
                            return page.read().decode()
                    except OSError:  # it does not listen yet
                        return ""

                return until(shown, f"{address} answers", PATIENCE_S)
            finally:
                forward.terminate()

    def ends(self, job: str) -> list[str]:
        """States and codes of a job or of the elements of an array, once all have ended."""

        def ended() -> bool:
            return bool(self.cluster.client.get("jobs", job, "wait", timeout_s=LONG_POLL_S)["final"])

        until(ended, f"job {job} ends", PATIENCE_S)
        return self(f"sacct -X -n -P -o State,ExitCode -j {job}").stdout.splitlines()


@pytest.fixture(scope="module")
def login(make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Login:
    if os.geteuid():
        pytest.skip("sharing a directory with the hosts needs root")
    settings = {"jobs": {"run_root_as": "", "allow_root": True, "licenses": ["solver=2"]}}
    cluster = make_cluster(settings, zones=1, hosts=len(FEATURES), gpus_per_host=2)
    inventory = yaml.safe_load(cluster.lab.inventory.read_text())
    for zone in inventory["all"]["children"].values():
        for name, settings_of_host in zone["hosts"].items():
            settings_of_host["rm_features"] = FEATURES[name]
    featured = cluster.directory / "featured.yml"
    featured.write_text(yaml.safe_dump(inventory))
    cluster.rmx("host", "import", featured)
    return Login(cluster, tmp_path_factory.mktemp("login"))


@pytest.fixture(scope="module")
def submitted(login: Login) -> dict[str, subprocess.CompletedProcess[str]]:
    """All scripts at once that can run here, as the users of a lab do."""
    names = [name for name in NAMES if not Expected.of(SCRIPTS / name).missing]
    with ThreadPoolExecutor(8) as pool:  # most of them wait
        return dict(zip(names, pool.map(login.submit, names), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_script_runs_unchanged(
    login: Login, submitted: dict[str, subprocess.CompletedProcess[str]], name: str
) -> None:
    expected = Expected.of(SCRIPTS / name)
    if expected.missing:
        pytest.skip(f"needs {expected.missing}")
    done = submitted[name]
    if "refused" in expected.lines:
        assert (done.returncode != 0, done.stdout) == (True, ""), done
        assert re.search(expected.one("refused", ""), done.stderr), done.stderr
        assert "Traceback" not in done.stderr
        return
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip().partition(";")[0]
    if forwarded := expected.one("forward", ""):
        assert "Jupyter" in login.page(job, forwarded)
        assert login(f"scancel {job}").returncode == 0
    ends = login.ends(job)
    path = login.directory / expected.one("file", "slurm-%j.out").replace("%j", job)
    said = path.read_text().splitlines() if path.exists() else []
    state, _, count = expected.one("state", "").partition(" ")
    assert [end.split("|")[0] for end in ends] == [state] * int(count or 1), (ends, said)
    if code := expected.one("code", ""):
        assert {end.split("|")[1] for end in ends} == {code}
    for pattern in expected.patterns:
        assert [line for line in said if re.fullmatch(pattern, line)], (pattern, said)
    for pattern in expected.lines.get("once", []):
        assert len([line for line in said if re.fullmatch(pattern, line)]) == 1, (pattern, said)
