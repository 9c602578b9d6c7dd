#!/bin/sh
#SBATCH --job-name=shared
#SBATCH --container-image=./image-shared
#SBATCH --container-name=env
#SBATCH --time=10
#= needs podman
#= submit bash container_shared.bash
#= state COMPLETED
#= line the script found what the step left: from a step
echo "made by the script" > /made
for _ in $(cat /etc/passwd) 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
    test -e /left && break
    sleep 1
done
echo "the script found what the step left: $(cat /left)"
