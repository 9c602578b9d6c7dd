#!/bin/bash
#SBATCH --job-name=notebook
#SBATCH --time=10
#= state COMPLETED
#= line served from the job
echo "served from the job" > page-$SLURM_JOB_ID.txt
port=$((30000 + SLURM_JOB_ID % 10000))
python3 -m http.server --bind 127.0.0.1 $port > /dev/null 2>&1 &
for _ in $(seq 300); do
    python3 -c "import urllib.request as u; print(u.urlopen('http://127.0.0.1:$port/page-$SLURM_JOB_ID.txt').read().decode(), end='')" 2> /dev/null && break
    sleep 0.1
done
