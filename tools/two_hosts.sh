#!/usr/bin/env bash
# Runs a command with Open MPI's mpirun over two hosts that are network namespaces of this machine:
# a cluster to try launches on (root only).
#
#   [RATE=1gbit] tools/two_hosts.sh RANKS-PER-HOST COMMAND...
#   tools/two_hosts.sh 2 build/tessera train --model vit_micro --dp 2 --tp 2 --epochs 1 \
#     --out /tmp/two
#
# RATE is that of the wire between them, as tc writes it; without it the wire is as fast as memory.
#
# Each host has an address, a loopback and a host name of its own; they share the file system, as
# the nodes of a cluster share theirs. Instead of ssh the launcher is told to enter a namespace.
# Everything that was made goes when the command ends.
set -euo pipefail
[[ $# -ge 2 && $1 =~ ^[0-9]+$ ]] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 2; }
((EUID == 0)) || { echo "two_hosts: making network namespaces needs root" >&2; exit 1; }
for tool in ip ${RATE:+tc} unshare mpirun; do
  command -v $tool >/dev/null || {
    echo "two_hosts: $tool not found (Debian: iproute2, util-linux, openmpi-bin)" >&2
    exit 1
  }
done
ranks=$1
shift

id=tessera$$
hosts=("${id}a" "${id}b")
addresses=(10.231.7.1 10.231.7.2)
work=$(mktemp -d)
clean() {
  for host in "${hosts[@]}"; do ip netns del "$host" 2>/dev/null || true; done
  rm -rf "$work"
}
trap clean EXIT

for host in "${hosts[@]}"; do
  ip netns add "$host"
  ip -n "$host" link set lo up
done
ip link add v0 netns "${hosts[0]}" type veth peer name v0 netns "${hosts[1]}"
for i in 0 1; do
  ip -n "${hosts[$i]}" addr add "${addresses[$i]}/24" dev v0
  ip -n "${hosts[$i]}" link set v0 up
  [[ -z ${RATE:-} ]] ||
    tc -n "${hosts[$i]}" qdisc add dev v0 root tbf rate "$RATE" burst 256kb latency 100ms
done

# What mpirun calls instead of ssh: agent ADDRESS COMMAND...
cat >"$work/agent" <<AGENT
#!/usr/bin/env bash
case \$1 in
  ${addresses[0]}) host=${hosts[0]} ;;
  ${addresses[1]}) host=${hosts[1]} ;;
  *) echo "two_hosts: no host \$1" >&2; exit 1 ;;
esac
address=\$1
shift
exec ip netns exec "\$host" unshare --uts sh -c 'hostname "\$0"; exec sh -c "\$1"' "\$address" "\$*"
AGENT
chmod +x "$work/agent"

"$work/agent" "${addresses[0]}" env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
  OMPI_MCA_rmaps_base_oversubscribe=1 \
  mpirun --mca plm_rsh_agent "$work/agent" --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include \
  v0 --mca btl tcp,self,vader \
  --mca btl_tcp_if_include v0 --mca hwloc_base_binding_policy none \
  --host "${addresses[0]}:$ranks,${addresses[1]}:$ranks" -np $((2 * ranks)) "$(printf '%q ' "$@")"
