#!/usr/bin/env bash
# What a slow link between two hosts costs a data-parallel training, with each way to add up and
# each compression (root only):
#
#   bench/slow_link.sh BUILD [RATE=1gbit] [STEPS=20] [ROWS=.] [DELAY=0] \
#     > bench/results/slow_link_MACHINE_DATE.md
#
# ROWS: a regular expression; only the ways whose names it matches are measured.
# DELAY: milliseconds that a packet is late, each way (tests/cluster/delay.py).
# Two hosts are network namespaces of this machine behind one cable, limited by tc both ways, with
# two ranks each. Printed: the median of the steps' times and of their exposed communication
# (docs/measuring.md; the third and every tenth step have it) with the least and the most, the bytes
# of a step on a rank, and the loss at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:?the build folder}")
rate=${2:-1gbit}
steps=${3:-20}
rows=${4:-.}
delay=${5:-0}
late=()
((EUID == 0)) || { echo "slow_link.sh: making network namespaces needs root" >&2; exit 77; }
id=slow$$
work=$(mktemp -d /tmp/tessera_link.XXXXXX)
finish() {
  for process in "${late[@]}"; do kill $process 2>/dev/null && wait $process || true; done
  for i in 1 2; do
    ip netns pids ${id}$i 2>/dev/null | xargs -r kill -9 2>/dev/null || true
    ip netns del ${id}$i 2>/dev/null || true
  done
  rm -rf "$work"
}
trap finish EXIT
for i in 1 2; do
  ip netns add ${id}$i
  ip -n ${id}$i link set lo up
done
ip link add v0 netns ${id}1 type veth peer name v0 netns ${id}2
for i in 1 2; do
  ip -n ${id}$i addr add 10.231.9.$i/24 dev v0
  ip -n ${id}$i link set v0 up
  tc -n ${id}$i qdisc replace dev v0 root tbf rate "$rate" burst 256kb latency 100ms
  [[ $delay != 0 ]] || continue
  tests/cluster/delay.py ${id}$i v0 "$delay" >"$work/late-$i" &
  late+=($!)
  until grep -qs ready "$work/late-$i"; do kill -0 ${late[-1]} && sleep 0.1; done
done
cat >"$work/agent" <<AGENT
#!/usr/bin/env bash
address=\$1
shift
exec env -i PATH="\$PATH" HOME="\$HOME" ip netns exec "$id\${address##*.}" \\
  unshare --uts sh -c 'hostname "\$0"; exec sh -c "\$1"' "h\${address##*.}" "\$*"
AGENT
chmod +x "$work/agent"
printf '10.231.9.1 slots=2\n10.231.9.2 slots=2\n' >"$work/hostfile"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm_rsh_agent=$work/agent
export OMPI_MCA_plm_rsh_no_tree_spawn=1 OMPI_MCA_oob_tcp_if_include=v0 OMPI_MCA_btl=tcp,vader,self
export OMPI_MCA_btl_tcp_if_include=v0 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_mpi_yield_when_idle=1

measure() {  # measure NAME SETTING...
  local name=$1 sets=()
  shift
  [[ $name =~ $rows ]] || return 0
  for setting in "$@"; do sets+=(--set "$setting"); done
  local command=("$build/tessera" train --model vit_tiny_cifar --data synthetic --global-batch 16
    --set data.train_size=4096 --set data.test_size=16 --threads 1 --np 4 --steps "$steps"
    --hostfile "$work/hostfile" --set run.eval_every=0 --set checkpoint.every=1000000
    --set checkpoint.keep_best=false --set run.trace=0 --quiet --fresh "${sets[@]}"
    --out "$work/run")
  local variables
  variables=$(env | grep '^OMPI_' | tr '\n' ' ')
  "$work/agent" 10.231.9.1 "env $variables $(printf '%q ' "${command[@]}")" \
    2>"$work/log" >&2 || { cat "$work/log" >&2; echo "| $name | failed | | | |"; return; }
  python3 - "$name" "$work/run" <<'READ'
import json, statistics, sys
name, run = sys.argv[1:]
steps = [json.loads(line) for line in open(run + "/metrics.jsonl")]
steps = [s for s in steps if s.get("kind") == "step"][2:]
exposed = [s["breakdown"]["comm_exposed"] for s in steps if s.get("breakdown")]
summary = json.load(open(run + "/summary.json"))
megabytes = sum(row["bytes"] for row in summary["comm"].values()) / 1e6


def spread(values):
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


print(f"| {name} | {spread([s['step_ms'] for s in steps])} | {spread(exposed)} | {megabytes:.2f} | "
      f"{steps[-1]['loss']:.4f} |", flush=True)
READ
}

echo "# Two hosts over $rate, $delay ms late: exposed communication with and without hierarchy" \
  "and compression"
echo
echo "\`bench/slow_link.sh BUILD $rate $steps . $delay\`, $("$build/tessera" version)," \
  "$(date -u +%F),"
echo "$(nproc) cores with a load of $(cut -d' ' -f1 /proc/loadavg): vit_tiny_cifar, 4 ranks of one"
echo "thread on two hosts, dp 4, 16 samples an update; medians (least to most) of" \
  "$((steps - 2)) steps,"
echo "exposed communication of steps 3, 10, 20, ..."
echo
echo "| how | step ms | exposed ms | MB sent a step | loss |"
echo "|---|---|---|---|---|"
measure "MPI's own all-reduce" parallel.all_reduce=mpi
measure "ring" parallel.all_reduce=ring
measure "hierarchical" parallel.all_reduce=hierarchical
measure "hierarchical, bf16 on the wire" parallel.all_reduce=hierarchical parallel.wire=bf16
measure "hierarchical, compress fp16" parallel.all_reduce=hierarchical parallel.compress=fp16
measure "hierarchical, compress int8" parallel.all_reduce=hierarchical parallel.compress=int8
measure "hierarchical, topk=0.01" parallel.all_reduce=hierarchical parallel.compress=topk=0.01
measure "hierarchical, powersgd=4" parallel.all_reduce=hierarchical parallel.compress=powersgd=4
