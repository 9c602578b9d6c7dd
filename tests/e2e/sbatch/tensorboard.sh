#!/bin/bash
#SBATCH -J tensorboard -t 10 -o tensorboard-%j.log
#= state COMPLETED
#= file tensorboard-%j.log
#= line ssh -N -L \d+:z1h\d:\d+ \w+@login
#= line the page answers
#= line trained
port=$(shuf -i 7800-8599 -n 1)
logdir=runs-$SLURM_JOB_ID
mkdir -p $logdir
echo "events" > $logdir/index.html
python3 -m http.server --bind 0.0.0.0 --directory $logdir $port > /dev/null 2>&1 &
board=$!
trap 'kill $board' EXIT
cat <<END
On your laptop run
ssh -N -L $port:$(hostname -s):$port $(id -un)@login
and look at http://localhost:$port
END
for _ in $(seq 300); do
    python3 -c "import urllib.request as u; assert b'events' in u.urlopen('http://127.0.0.1:$port/').read()" 2> /dev/null \
        && echo "the page answers" && break
    sleep 0.1
done
srun -n1 bash -c 'echo trained'
