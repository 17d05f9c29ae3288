#!/usr/bin/env bash
# A real Slurm of two nodes on this machine, in a folder of its own, and what a training must do
# under it (root only):
#
#   tests/cluster/slurm.sh BUILD [TRANSCRIPT]     exit status 0: everything held; 77: there is no
#                                                 Slurm here
#
# srun over both nodes gives the bits of `--np`; a study scales over them; sbatch with
# --signal=USR1@ saves, ends with 75 and goes on when it is requeued; a job of a partition with
# precedence preempts one that goes on afterwards; scancel loses nothing; the job file for cards is
# one that Slurm takes.
# Everything that was started ends with the script.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:?the build folder}")
transcript=${2:-/dev/null}
for tool in munged slurmctld slurmd sbatch srun scontrol; do
  PATH=$PATH:/usr/sbin command -v $tool >/dev/null || {
    echo "slurm.sh: not run: $tool not found (Debian: slurm-wlm, munge)"
    exit 77
  }
done
((EUID == 0)) || { echo "slurm.sh: not run: slurmd needs root"; exit 77; }
export PATH=$PATH:/usr/sbin
work=$(mktemp -d /tmp/tessera_slurm.XXXXXX)
chmod 755 "$work"
host=$(hostname -s)
daemons=()
. tests/cluster/held.sh

# Two nodes of one machine share what PMIx keeps in shared memory: it shall keep its own.
export PMIX_MCA_gds=hash
run() { say "\$ $*"; "$@" 2>&1 | tee -a "$transcript"; return "${PIPESTATUS[0]}"; }
finish() {
  scancel --user=root 2>/dev/null || true
  sleep 1
  for ((i = ${#daemons[@]} - 1; i >= 0; --i)); do kill "${daemons[$i]}" 2>/dev/null || true; done
  sleep 3  # a slurmd that still waits for a step waits for ever
  for pid in "${daemons[@]}"; do
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap finish EXIT

start_cluster() {
  mkdir "$work/state" "$work/n1" "$work/n2" "$work/tmp-n1" "$work/tmp-n2" "$work/munge"
  dd if=/dev/urandom of="$work/munge/key" bs=1024 count=1 status=none
  chmod 400 "$work/munge/key"
  munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" \
    --pid-file="$work/munge/pid" \
    --log-file="$work/munge/log" --seed-file="$work/munge/seed" &
  daemons+=($!)
  cat >"$work/slurm.conf" <<CONF
ClusterName=tessera
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/%n
SlurmctldPidFile=$work/ctld.pid
SlurmdPidFile=$work/%n.pid
SlurmctldLogFile=$work/ctld.log
SlurmdLogFile=$work/%n.log
TmpFS=$work/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
ReturnToService=2
KillWait=30
SchedulerParameters=requeue_setup_env_fail,bf_interval=5,sched_interval=5
SlurmctldPort=16817
MpiDefault=pmix
GresTypes=gpu
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=17001 CPUs=2 Gres=gpu:1 State=UNKNOWN
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=17002 CPUs=2 Gres=gpu:1 State=UNKNOWN
PartitionName=low Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=60
PartitionName=high Nodes=n1,n2 MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
CONF
  echo "NodeName=n[1-2] Name=gpu File=/dev/null" >"$work/gres.conf"  # it is only counted
  export SLURM_CONF=$work/slurm.conf
  slurmctld -D >"$work/ctld.out" 2>&1 &
  daemons+=($!)
  for node in n1 n2; do
    slurmd -D -N $node >"$work/$node.out" 2>&1 &
    daemons+=($!)
  done
  for ((i = 0; i < 60; ++i)); do
    [[ $(sinfo -h -N -o %T 2>/dev/null | sort -u) == idle ]] && break
    sleep 0.5
  done
  run sinfo -N -o "%N %P %T %c"
}

state_of() { scontrol show job "$1" 2>/dev/null | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p'; }
wait_for() {  # wait_for SECONDS CONDITION...
  local until=$((SECONDS + $1))
  shift
  until "$@"; do ((SECONDS < until)) || return 1; sleep 0.3; done
}
steps_in() { [[ -e $1/metrics.jsonl ]] && (($(grep -c '"kind":"step"' "$1/metrics.jsonl") >= $2)); }
in_state() { [[ $(state_of "$1") == "$2" ]]; }
same() { cmp -s "$1/weights.safetensors" "$2/weights.safetensors"; }
restarted() { (($(scontrol show job "$1" | sed -n 's/.*Restarts=\([0-9]*\).*/\1/p') >= $2)); }

tessera=$build/tessera
tiny=(--model vit_micro --set model.depth=1 --set data.train_size=512 --set data.test_size=32
  --global-batch 32 --threads 1 --set run.eval_every=0 --set checkpoint.every=50 --quiet)
submit() {  # submit NAME SBATCH-OPTION... -- TRAIN-ARGUMENT...: the number of the job, of $file
  local name=$1 options=()
  shift
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  shift
  TESSERA=$tessera sbatch --parsable --chdir="$work" --output="$work/$name.log" "${options[@]}" \
    "$PWD/deploy/${file:-slurm_cpu.sbatch}" "$@"
}

start_cluster
say "Slurm $(slurmctld -V | cut -d' ' -f2), $("$tessera" version), $(date -u +%F)"

say; say "== srun over two nodes: the bits of --np 2"
run "$tessera" train "${tiny[@]}" --steps 60 --np 2 --out "$work/alone"
run srun --mpi=pmix -N2 -n2 "$tessera" train "${tiny[@]}" --steps 60 --out "$work/srun"
hold "the weights of srun are those of --np" same "$work/srun" "$work/alone"

say; say "== the README's lines for Slurm, with fewer ranks"
readme_run 32
pasted() {  # pasted PATTERN: the command of the README that has it, with one rank a node
  local line
  line=$(readme_line "$1" "s|build/tessera|$tessera|; s|deploy/|$PWD/deploy/|
    s|--ntasks-per-node=4|--ntasks-per-node=1|") || return 1
  say "\$ $line"
  (cd "$work" && TESSERA=$tessera bash -c "$line")
}
hold "srun" pasted '^srun -N 2'
hold "its run came to its end" test "$(ls "$work"/runs/*/summary.json | wc -l)" = 1
rm -rf "$work/runs"
pasted '^sbatch --nodes=2' >"$work/submitted"
hold "sbatch" wait_for 90 in_state "$(sed -n 's/Submitted batch job //p' "$work/submitted")" \
  COMPLETED
hold "its run came to its end" test "$(ls "$work"/runs/*/summary.json | wc -l)" = 1

say; say "== a study: strong and weak scaling on one and two nodes, each run a srun"
launches() { grep -c 'launch task' "$work/$1.log" || true; }
before=$(launches n2)
status=0; run "$tessera" study studies/small/slurm.toml --out "$work/study" || status=$?
hold "every run is done (exit status $status)" test $status = 0
hold "strong and weak, on one and two nodes, three times each" \
  test "$(ls -d "$work"/study/runs/*/*-r[0-9]* | wc -l)" = 12
hold "the second node has had a rank of six runs" test $(($(launches n2) - before)) -ge 6

# Enough steps to be interrupted, as many as this machine does in three quarters of a minute.
begin=$(date +%s%N)
"$tessera" train "${tiny[@]}" --steps 200 --np 2 --out "$work/speed"
steps=$((200 * 45 * 1000 / (($(date +%s%N) - begin) / 1000000) / 50 * 50))
steps=$((steps < 400 ? 400 : steps))
say; say "== an undisturbed run of $steps steps"
run "$tessera" train "${tiny[@]}" --steps $steps --np 2 --out "$work/whole"

say; say "== preemption: a job of the partition high needs both nodes"
low=$(submit low -p low --nodes=2 -- "${tiny[@]}" --steps $steps --out "$work/low")
hold "the job has begun" wait_for 90 steps_in "$work/low" 60
high=$(submit high -p high --nodes=2 -- "${tiny[@]}" --steps 60 --out "$work/high")
hold "the job with precedence has run" wait_for 180 in_state "$high" COMPLETED
hold "the other was started again" wait_for 180 restarted "$low" 1
hold "and has come to its end" wait_for 400 in_state "$low" COMPLETED
run cat "$work/low.log"
hold "it saved and ended with 75" grep -q "tessera ended with 75" "$work/low.log"
hold "its weights are those of a run that nobody disturbed" same "$work/low" "$work/whole"

say; say "== a time limit: --signal=USR1@ comes before it"
# The signal comes when Slurm gets to it, so the run has no end until it has come: how many steps it
# has stands in a file.
constant=("${tiny[@]}" --set lr.schedule=constant --set lr.warmup=0)
echo 1000000 >"$work/length"
printf '#!/bin/bash\nexec %q "$@" --steps "$(cat %q)"\n' "$tessera" "$work/length" >"$work/until"
chmod +x "$work/until"
job=$(tessera=$work/until submit limit -p low --nodes=2 --time=1 --signal=USR1@45 \
  -- "${constant[@]}" --out "$work/limit")
hold "the job was asked to stop" wait_for 180 grep -qs "tessera ended with 75" "$work/limit.log"
saved=$(basename "$(ls -dv "$work"/limit/ckpt/step-* | tail -1)")
steps=$((${saved#step-} + 100))
echo $steps >"$work/length"
hold "and queued again" wait_for 180 restarted "$job" 1
scontrol update jobid="$job" timelimit=10 2>/dev/null || true
hold "and has come to its end" wait_for 400 in_state "$job" COMPLETED
run cat "$work/limit.log"
run "$tessera" train "${constant[@]}" --steps $steps --np 2 --out "$work/limit_whole"
hold "its weights are those of a run of $steps steps that nobody disturbed" same "$work/limit" \
  "$work/limit_whole"

say; say "== a rank that is killed on a node: the job queues again"
job=$(submit lost -p low --nodes=2 -- "${tiny[@]}" --steps 400 --out "$work/lost")
hold "the job has begun" wait_for 90 steps_in "$work/lost" 60
victim=$(grep -o '"pid":[0-9]*' "$work"/lost/.pulse/rank-1 | cut -d: -f2)
run kill -9 "$victim"
hold "it has come to its end all the same" wait_for 300 in_state "$job" COMPLETED
run cat "$work/lost.log"
hold "the rank was named" grep -q "rank 1 (.*killed from outside (SIGKILL)" "$work/lost.log"
run "$tessera" train "${tiny[@]}" --steps 400 --np 2 --out "$work/whole400"
hold "its weights are those of a run that nobody disturbed" same "$work/lost" "$work/whole400"

say; say "== scancel and the same command again"
job=$(submit cancel -p low --nodes=2 -- "${tiny[@]}" --steps 300 --out "$work/cancel")
hold "the job has begun" wait_for 90 steps_in "$work/cancel" 60
run scancel --signal=TERM "$job"
hold "the job has saved" wait_for 60 grep -q "tessera ended with 75" "$work/cancel.log"
run scancel "$job"
job=$(submit again -p low --nodes=2 -- "${tiny[@]}" --steps 300 --out "$work/cancel")
hold "the next one goes on to the end" wait_for 300 in_state "$job" COMPLETED
run "$tessera" train "${tiny[@]}" --steps 300 --np 2 --out "$work/whole300"
hold "its weights are those of a run that nobody disturbed" same "$work/cancel" "$work/whole300"

say; say "== restarts inside of an allocation: --np with --restarts starts its ranks with mpirun" \
  "on both nodes"
cat >"$work/inside.sbatch" <<BATCH
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --output=$work/inside.log
export OMPI_MCA_hwloc_base_binding_policy=none
"$tessera" train ${tiny[*]} --steps 400 --np 2 --restarts 2 --out "$work/inside"
echo "tessera ended with \$?"
BATCH
job=$(sbatch --parsable "$work/inside.sbatch")
hold "the job has begun" wait_for 90 steps_in "$work/inside" 60
victim=$(find "$work" -path '*/.ranks-*/rank-1' -exec grep -o '"pid":[0-9]*' {} + | cut -d: -f2)
run kill -9 "$victim"
hold "it has come to its end by itself" wait_for 300 grep -q "tessera ended with 0" \
  "$work/inside.log"
run cat "$work/inside.log"
hold "it started its ranks again" grep -q "restart 1 of 2" "$work/inside.log"
hold "its weights are those of a run that nobody disturbed" same "$work/inside" "$work/whole400"

say; say "== the job file for cards: two nodes with one each that is none, and ranks that compute" \
  "on the CPU"
cards=(--nodes=2 --ntasks-per-node=1 --cpus-per-task=1)
TESSERA=$tessera hold "Slurm takes it" run sbatch --test-only "${cards[@]}" --gpus-per-node=1 \
  deploy/slurm_gpu.sbatch
hold "and refuses two cards of a node" \
  bash -c '! sbatch --test-only "$@" --gpus-per-node=2 deploy/slurm_gpu.sbatch 2>/dev/null' - \
  "${cards[@]}"
job=$(file=slurm_gpu.sbatch submit cards "${cards[@]}" --gpus-per-node=1 \
  -- "${tiny[@]}" --steps 60 --device cpu --out "$work/cards")
hold "it has come to its end" wait_for 120 in_state "$job" COMPLETED
run cat "$work/cards.log"
hold "its weights are those of --np" same "$work/cards" "$work/alone"

say
if ((failed)); then say "slurm.sh: FAILED"; else say "slurm.sh: everything held"; fi
exit $failed
