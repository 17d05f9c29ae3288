#!/usr/bin/env bash
# Three hosts that are network namespaces of this machine behind one switch, and what a job must do
# on them (root only):
#
#   tests/cluster/hosts.sh BUILD [TRANSCRIPT]     exit status 0: everything held; 77: this machine
#                                                 cannot have such hosts
#
# Each host has an address, a loopback and a host name of its own; they share the file system.
# Instead of ssh mpirun enters a namespace. doctor names the link that is slower than the others; a
# job whose host is lost goes on without it and takes it in again when it is back, with the losses
# of a run that had that sequence of layouts; one whose host is cut off goes on, too.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:?the build folder}")
transcript=${2:-/dev/null}
((EUID == 0)) || { echo "hosts.sh: not run: making network namespaces needs root"; exit 77; }
for tool in ip tc unshare mpirun; do
  command -v $tool >/dev/null || {
    echo "hosts.sh: not run: $tool not found (Debian: iproute2, util-linux, openmpi-bin)"
    exit 77
  }
done
id=tess$$
ip netns add ${id}s 2>/dev/null || {
  echo "hosts.sh: not run: the kernel allows no network namespaces"
  exit 77
}
work=$(mktemp -d /tmp/tessera_hosts.XXXXXX)
address() { echo 10.231.8.$1; }
late=()  # the processes that stand for late cables
finish() {
  for process in "${late[@]}"; do kill $process 2>/dev/null && wait $process || true; done
  for i in 1 2 3; do
    ip netns pids ${id}$i 2>/dev/null | xargs -r kill -9 2>/dev/null || true
    ip netns del ${id}$i 2>/dev/null || true
  done
  ip netns del ${id}s 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
. tests/cluster/held.sh

ip -n ${id}s link add sw type bridge
ip -n ${id}s link set sw up
for i in 1 2 3; do  # a cable to the switch
  ip netns add ${id}$i
  ip -n ${id}$i link set lo up
  ip link add v0 netns ${id}$i type veth peer name p$i netns ${id}s
  ip -n ${id}s link set p$i master sw
  ip -n ${id}s link set p$i up
  ip -n ${id}$i addr add "$(address $i)/24" dev v0
  ip -n ${id}$i link set v0 up
done
limit() {  # limit HOST RATE: both ways
  tc -n ${id}$1 qdisc replace dev v0 root tbf rate "$2" burst 256kb latency 100ms
  tc -n ${id}s qdisc del dev p$1 root 2>/dev/null || true  # with the delay below it
  tc -n ${id}s qdisc add dev p$1 root handle 8231: tbf rate "$2" burst 256kb latency 100ms
}
delay_by=  # a process where the kernel has no netem (tests/cluster/delay.py)
if tc -n ${id}1 qdisc replace dev lo root netem delay 1ms 2>/dev/null; then
  tc -n ${id}1 qdisc del dev lo root
  delay_by=netem
elif command -v iptables >/dev/null &&
    ip netns exec ${id}1 iptables -t mangle -A PREROUTING -i none -j NFQUEUE 2>/dev/null; then
  ip netns exec ${id}1 iptables -t mangle -D PREROUTING -i none -j NFQUEUE
  delay_by=delay.py
fi
delay() {  # delay HOST MILLISECONDS: what comes to it, on top of its limit
  if [[ $delay_by = netem ]]; then
    tc -n ${id}s qdisc replace dev p$1 parent 8231:1 netem delay "$2ms" limit 100000
    return
  fi
  tests/cluster/delay.py ${id}$1 v0 "$2" >"$work/delay-$1" &
  late+=($!)
  wait_for 20 grep -qs ready "$work/delay-$1"
}
# mpirun calls this instead of ssh: agent ADDRESS COMMAND... A host that is down does not answer. As
# over ssh nothing of the environment comes along.
cat >"$work/agent" <<AGENT
#!/usr/bin/env bash
address=\$1
shift
[[ ! -e $work/down-\$address ]] || exit 255
exec env -i PATH="\$PATH" HOME="\$HOME" ip netns exec "$id\${address##*.}" \\
  unshare --uts sh -c 'hostname "\$0"; exec sh -c "\$1"' "h\${address##*.}" "\$*"
AGENT
chmod +x "$work/agent"
for i in 1 2 3; do echo "$(address $i) slots=1" >>"$work/hostfile"; done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
  OMPI_MCA_plm_rsh_agent=$work/agent OMPI_MCA_plm_rsh_no_tree_spawn=1 \
  OMPI_MCA_oob_tcp_if_include=v0 OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=v0 \
  OMPI_MCA_hwloc_base_binding_policy=none
at_first() {  # a command on the first host
  "$work/agent" "$(address 1)" "env $(env | grep '^OMPI_' | tr '\n' ' ') $(printf '%q ' "$@")"
}

tiny=(--model vit_micro --set model.depth=1 --set data.train_size=480 --set data.test_size=32
  --global-batch 48 --threads 1 --set run.eval_every=0 --set checkpoint.every=1
  --set checkpoint.keep=100000 --set checkpoint.keep_best=false --set parallel.hang_s=8
  --set run.host_wait_s=1)
losses() { grep '"kind":"step"' "$1/metrics.jsonl" | grep -o '"step":[0-9]*\|"loss":[-0-9.e]*'; }
reached() { [[ -e $1/metrics.jsonl ]] && (($(grep -c '"kind":"step"' "$1/metrics.jsonl") >= $2)); }
wait_for() {  # wait_for SECONDS CONDITION...
  local until=$((SECONDS + $1))
  shift
  until "$@"; do ((SECONDS < until)) || return 1; sleep 0.2; done
}
segments() {
  python3 -c 'import json, sys
segments = json.load(open(sys.argv[1]))["segments"]
print(*[s.get("after_step", 0) for s in segments])' "$1/env.json"
}

say "$("$build/tessera" version), $(mpirun --version | head -1), $(date -u +%F)"
say; say "== doctor: all links alike (1 Gb/s)"
for i in 1 2 3; do limit $i 1gbit; done
status=0; at_first "$build/tessera" doctor --hostfile "$work/hostfile" --out "$work" \
  >"$work/doctor" 2>&1 || status=$?
tee -a "$transcript" <"$work/doctor"
hold "it looked at the links (exit status $status)" grep -q "^all-reduce of all" "$work/doctor"
hold "no link is called slow" bash -c '! grep "problem: .*link" "$0"' "$work/doctor"

say; say "== doctor: the third host has 100 Mb/s"
limit 3 100mbit
status=0; at_first "$build/tessera" doctor --hostfile "$work/hostfile" --out "$work" \
  >"$work/doctor" 2>&1 || status=$?
tee -a "$transcript" <"$work/doctor"
hold "exit status 1" test $status = 1
hold "every link of the third host is named" grep -q "problem: every link of h3 is slow" \
  "$work/doctor"

say; say "== doctor: all links alike (10 Gb/s)"
for i in 1 2 3; do limit $i 10gbit; done
status=0; at_first "$build/tessera" doctor --hostfile "$work/hostfile" --out "$work" \
  >"$work/doctor" 2>&1 || status=$?
tee -a "$transcript" <"$work/doctor"
hold "it looked at the links (exit status $status)" grep -q "^all-reduce of all" "$work/doctor"
hold "no link is called slow" bash -c '! grep "problem: .*link" "$0"' "$work/doctor"

in_time() {  # all cables are in time again
  for process in "${late[@]}"; do
    kill $process
    wait $process 2>/dev/null || true
  done
  late=()
  for i in 1 2 3; do limit $i "$1"; done
}
microseconds() {
  sed -n 's/^\(h[0-9] [0-9]* - h[0-9] [0-9]*\) *\([0-9.]*\) .*/\2/p' "$work/doctor"
}
if [[ $delay_by ]]; then
  for rate in 1gbit 10gbit; do
    say; say "== doctor: all links alike ($rate, and late by 1 ms each way, by $delay_by)"
    in_time $rate
    for i in 1 2 3; do delay $i 1; done
    status=0; at_first "$build/tessera" doctor --hostfile "$work/hostfile" --out "$work" \
      >"$work/doctor" 2>&1 || status=$?
    tee -a "$transcript" <"$work/doctor"
    hold "a message takes a millisecond or more on every link" \
      test "$(microseconds | awk '$1 >= 1000' | wc -l)" = 3
    hold "no link is called slow" bash -c '! grep "problem: .*link" "$0"' "$work/doctor"
  done
  say; say "== trainings over such links have the bits of others"
  over() {
    at_first "$build/tessera" train "${tiny[@]}" --steps 30 --np 3 --hostfile "$work/hostfile" \
      --quiet --out "$work/$1"
  }
  over late
  in_time 10gbit
  over soon
  hold "the same weights" cmp "$work/late/weights.safetensors" "$work/soon/weights.safetensors"

  say; say "== doctor: what comes to the third host is late by 20 ms"
  delay 3 20
  status=0; at_first "$build/tessera" doctor --hostfile "$work/hostfile" --out "$work" \
    >"$work/doctor" 2>&1 || status=$?
  tee -a "$transcript" <"$work/doctor"
  hold "every link of the third host is named" grep -q "problem: every link of h3 is slow" \
    "$work/doctor"
  in_time 10gbit
else
  say; say "late links: not run: this kernel has neither netem nor, by iptables, NFQUEUE"
fi

say; say "== doctor: a host that does not answer"
touch "$work/down-$(address 2)"
status=0; at_first "$build/tessera" doctor --hostfile "$work/hostfile" --out "$work" --json \
  >"$work/doctor" 2>/dev/null || status=$?
hold "exit status 1" test $status = 1
hold "it is named" grep -q "$(address 2) did not answer" "$work/doctor"
rm "$work/down-$(address 2)"

say; say "== the README's lines for hosts, with fewer ranks"
readme_run 48
pasted() {  # pasted PATTERN: the command of the README that has it, on the hosts of this test
  local line
  line=$(readme_line "$1" "s|build/tessera|$build/tessera|
    s|--hostfile hosts|--hostfile $work/hostfile|
    s|--np 4:8|--np 2:3|; s|-np 8|-np 2|") || return 1
  say "\$ $line"
  "$work/agent" "$(address 1)" "cd $work && env $(env | grep '^OMPI_' | tr '\n' ' ') $line" \
    >>"$work/pasted.log" 2>&1
}
hold "mpirun over hosts" pasted '^mpirun -np 8 --hostfile hosts'
hold "--np MIN:MAX --restarts" pasted 'train run.toml --np 4:8'
echo '{"train_batch_size": 48, "zero_optimization": {"stage": 1}}' >"$work/ds.json"
hold "DeepSpeed's configuration" pasted '--deepspeed ds.json'
hold "all came to their end" test "$(ls "$work"/runs/*/summary.json | wc -l)" = 3
status=0
pasted 'doctor --hostfile hosts' || status=$?
hold "doctor" test $status -le 1
hold "it spoke of three hosts" grep -q "^h3 " "$work/pasted.log"
hold "and called no link slow" bash -c '! grep "problem: .*link" "$0"' "$work/pasted.log"
tail -n 40 "$work/pasted.log" >>"$transcript"

say; say "== a host is lost for a while: --np 2:3 --restarts 3"
steps=1200
at_first "$build/tessera" train "${tiny[@]}" --steps $steps --np 2:3 --restarts 3 \
  --hostfile "$work/hostfile" --quiet --out "$work/lost" \
  >"$work/lost.log" 2>&1 &
job=$!
hold "the job has begun" wait_for 180 reached "$work/lost" 40
touch "$work/down-$(address 3)"
ip netns pids ${id}3 | xargs -r kill -9
hold "it goes on with two ranks" wait_for 240 grep -q "restart 1: in step" "$work/lost.log"
rm "$work/down-$(address 3)"
hold "the host is taken in again" wait_for 240 grep -q "answers again" "$work/lost.log"
status=0; wait $job || status=$?
tee -a "$transcript" <"$work/lost.log"
hold "exit status 0" test $status = 0
expected="2 of 3 ranks, without $(address 3), which does not answer"
hold "with the layout of two hosts" grep -q \
  "$expected; dp 2 instead of 3, 2 micro-batches instead of 1" "$work/lost.log"

say; say "== the same sequence of layouts by hand"
read -r -a after <<<"$(segments "$work/lost")"
say "the second start went on after step ${after[1]}, the third after step ${after[2]}"
hand() {  # hand RANKS ACCUMULATE
  at_first "$build/tessera" train "${tiny[@]}" --steps $steps --np "$1" --accumulate "$2" \
    --hostfile "$work/hostfile" --quiet --out "$work/hand" \
    2>&1 | tee -a "$transcript"
}
forget() {  # forget STEP: what came after it
  rm -f "$work/hand/summary.json" "$work/hand/weights.safetensors"
  for folder in "$work"/hand/ckpt/step-*; do ((${folder##*-} <= $1)) || rm -rf "$folder"; done
}
hand 3 1; forget "${after[1]}"
hand 2 2; forget "${after[2]}"
hand 3 1
hold "the same losses" cmp <(losses "$work/lost") <(losses "$work/hand")
hold "the same weights" cmp "$work/lost/weights.safetensors" "$work/hand/weights.safetensors"

say; say "== a host is lost with its memory: checkpoints in memory alone"
at_first "$build/tessera" train "${tiny[@]}" --set checkpoint.every=1000000 \
  --set checkpoint.memory_every=1 --steps 300 --np 3 --restarts 2 \
  --hostfile "$work/hostfile" --quiet --out "$work/memory" >"$work/memory.log" 2>&1 &
job=$!
hold "the job has begun" wait_for 180 reached "$work/memory" 40
touch "$work/down-$(address 3)"
ip netns pids ${id}3 | xargs -r kill -9
# The host shares the memory of this machine; one that is lost takes its own along.
rm -rf /dev/shm/tessera-memory-*.h3
status=0; wait $job || status=$?
tee -a "$transcript" <"$work/memory.log"
hold "exit status 0" test $status = 0
hold "nothing was on disk, and it went on from memory" \
  grep -q "in memory; the newest on disk is none" "$work/memory/log.txt"
read -r -a after <<<"$(segments "$work/memory")"
say "$(grep 'in memory' "$work/memory/log.txt" | head -3)"
hold "after the 30th step or later (${after[1]})" test "${after[1]}" -ge 30
hold "nothing is left in memory" \
  test -z "$(find /dev/shm -maxdepth 1 -name 'tessera-memory-*.h[123]')"
rm "$work/down-$(address 3)"

say; say "== a host is cut off: its cable is pulled"
at_first "$build/tessera" train "${tiny[@]}" --steps 400 --np 1:3 --restarts 3 \
  --hostfile "$work/hostfile" --quiet --out "$work/cut" \
  >"$work/cut.log" 2>&1 &
job=$!
hold "the job has begun" wait_for 180 reached "$work/cut" 40
ip -n ${id}s link set p2 down
status=0; wait $job || status=$?
tee -a "$transcript" <"$work/cut.log"
hold "exit status 0, without the host" test $status = 0
hold "it is named" grep -q "$(address 2) does not answer (rank 1): it is lost or cut off" \
  "$work/cut.log"
hold "it was left out" grep -q "without $(address 2), which does not answer" "$work/cut.log"
hold "no rank is left on it" \
  bash -c "! ip netns pids ${id}2 | xargs -r ps -o args= -p | grep -q 'tessera train'"

say
if ((failed)); then say "hosts.sh: FAILED"; else say "hosts.sh: everything held"; fi
exit $failed
