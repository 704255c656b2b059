#!/bin/bash
# A fleet for one Slurm job: a node of the fleet on every machine, then a benchmark on all their GPUs.
#   sbatch examples/fleet/slurm.sh tasks/ --candidates answers/ --target rocm --out results/
# The home folder is shared: the head writes ~/.ray/auth_token, and the other machines read it.
#SBATCH --job-name=hipwright
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=04:00:00
set -euo pipefail

port=${HIPWRIGHT_FLEET_PORT:-6379}
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
on() { srun --overlap --nodes=1 --ntasks=1 --nodelist="$1" "${@:2}"; }
ip() { on "$1" hostname --ip-address | awk '{print $1}'; }

head_ip=$(ip "${nodes[0]}")
address=$head_ip:$port
on "${nodes[0]}" hipwright fleet up --host "$head_ip" --port "$port" --name "${nodes[0]}" --block &

until on "${nodes[0]}" hipwright fleet status --address "$address" > /dev/null 2>&1; do sleep 2; done
for node in "${nodes[@]:1}"; do
    on "$node" hipwright fleet up --address "$address" --host "$(ip "$node")" --name "$node" --block &
done

# nodes that join later are used as they come
code=0
on "${nodes[0]}" hipwright bench "$@" --fleet "$address" --resume || code=$?
kill $(jobs -p) 2> /dev/null || true
exit "$code"
