"""What peers needed for the same on a machine of this kind: constants, measured beforehand.

Conditions: a quiet virtual machine with 2 cores and 24 GiB under Debian 12, trivial jobs, each
peer's daemons on that machine. Slurm 22.05 ("tuned": its scheduler's settings changed for many
short jobs); HyperQueue 0.27 through its API and without its journal, so that nothing of it is
durable. Such machines differ from day to day: they show an order of magnitude.
"""

SUBMIT_PROCESS = "one submit call of Slurm 8 to 9 ms, of Grid Engine 73 ms"
SUBMISSIONS_ONE = "Slurm 233/s from one client, HyperQueue 8,209/s (not durable)"
SUBMISSIONS_EIGHT = "Slurm 443 to 491/s from 8 clients, HyperQueue 5,261/s (not durable)"
SUBMISSIONS_STARTING = "Slurm 109 to 215/s from 8 clients while jobs start"
SUBMISSIONS_ARRAY = "HyperQueue 8,209/s from one client (not durable), Slurm 233/s"
START_MEDIAN = "Slurm 983 ms (tuned 681), HyperQueue 6.4 ms, Grid Engine 158 ms"
START_P95 = "Slurm 1,765 ms, HyperQueue 9.4 ms, Grid Engine 200 ms"
JOBS_16_SLOTS = "Slurm 10/s (tuned 29/s)"
JOBS_64_SLOTS = "Slurm 42 to 51/s (tuned 64/s), HyperQueue 483 to 570/s (not durable), Grid Engine 7 to 10/s"
ARRAY_10000 = "an array of 10,000: Slurm 43/s, HyperQueue 530/s"
LIST_10000 = "Slurm lists 10,000 pending jobs in 101 to 154 ms"
SUBMIT_10000 = "Slurm takes 9 to 15 ms for a submission with 10,000 pending"
MEMORY_10000 = "Slurm's controller 64 to 189 MB with 10,000 pending"
LOST = "Slurm, killed during submissions, lost 92 of 209, 106 of 289 and 161 of 256 acknowledged jobs"
