"""The two hosts of bench/fault_campaign.py: made up, or network namespaces of this machine.

Made-up hosts are names: what mpirun calls instead of ssh starts everything here, over the loopback.
Network namespaces (root only) have addresses of their own behind a switch, the launcher has a third
one, and a host can be cut off: its link loses everything, both ways.

All that runs on a host has TMPDIR=WORK/tmp-HOST in its environment.
"""
import os, signal, subprocess

AGENT = """#!/bin/sh
host=$1
shift
while [ -e {work}/stopped-$host ]; do sleep 0.1; done
[ ! -e {work}/down-$host ] || exit 255
export TESSERA_HOST=$host TMPDIR={work}/tmp-$host
mkdir -p $TMPDIR
exec {enter} sh -c "$*"
"""


def text_of(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def stat_of(pid):
    """The state of a process and its parent."""
    fields = text_of(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return (fields[0].decode(), int(fields[1])) if len(fields) > 1 else ("", -1)


def with_variable(name, value):
    """The processes that have that variable and have not ended."""
    wanted = f"{name}={value}".encode()
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
            if wanted in text_of(f"/proc/{pid}/environ").split(b"\0") and stat_of(pid)[0] != "Z"]


def kill(pid, number):
    """Whether there was such a process."""
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


class MadeUpHosts:
    names = ["tessera-a", "tessera-b"]
    kinds = ["host killed", "host stopped"]
    begin = []  # of the command that starts a job
    enter = ""
    # Open MPI leaves the loopback out by itself; there may be no other network.
    network = {"OMPI_MCA_btl_tcp_if_include": "127.0.0.0/8"}

    def __init__(self, work, slots):
        self.work, self.file = work, work + "/hosts"
        agent = work + "/agent"
        with open(agent, "w") as script:
            script.write(AGENT.format(work=work, enter=self.enter))
        os.chmod(agent, 0o700)
        with open(self.file, "w") as hosts:
            hosts.writelines(f"{host} slots={slots}\n" for host in self.names)
        self.environment = {"OMPI_MCA_plm_rsh_agent": agent, "OMPI_MCA_btl": "tcp,self",
                            **self.network}

    def make(self):
        """Before the first job; end() undoes it, also where this came half of the way."""

    def processes(self, host):
        return with_variable("TMPDIR", f"{self.work}/tmp-{host}")

    def lose(self, host, kind):
        """Whether anything ran there."""
        state = {"host killed": "down", "host stopped": "stopped"}[kind]
        open(f"{self.work}/{state}-{host}", "w").close()
        number = signal.SIGKILL if kind == "host killed" else signal.SIGSTOP
        return any([kill(pid, number) for pid in self.processes(host)])

    def bring_back(self, host):
        for pid in self.processes(host):
            kill(pid, signal.SIGCONT)
        for state in ("stopped", "down"):
            if os.path.exists(f"{self.work}/{state}-{host}"):
                os.remove(f"{self.work}/{state}-{host}")

    def end(self):
        pass


class Namespaces(MadeUpHosts):
    names = ["10.231.9.1", "10.231.9.2"]
    kinds = [*MadeUpHosts.kinds, "host cut off", "host cut off"]
    network = {"OMPI_MCA_oob_tcp_if_include": "v0", "OMPI_MCA_btl_tcp_if_include": "v0",
               "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
               "OMPI_MCA_hwloc_base_binding_policy": "none"}

    def __init__(self, work, slots):
        self.id = f"tessc{os.getpid()}"
        self.begin = ["ip", "netns", "exec", self.id + "9"]
        self.enter = f"ip netns exec {self.id}${{host##*.}}"
        super().__init__(work, slots)

    def make(self):
        self.say(f"ip netns add {self.id}s", f"ip -n {self.id}s link add sw type bridge",
                 f"ip -n {self.id}s link set sw up")
        for i in "1", "2", "9":  # the last one is the launcher's
            own = self.id + i
            self.say(f"ip netns add {own}", f"ip -n {own} link set lo up",
                     f"ip link add v0 netns {own} type veth peer name p{i} netns {self.id}s",
                     f"ip -n {self.id}s link set p{i} master sw up",
                     f"ip -n {own} addr add 10.231.9.{i}/24 dev v0",
                     f"ip -n {own} link set v0 up")

    def say(self, *lines):
        for line in lines:
            subprocess.run(line.split(), check=True)

    def ends(self, host):
        """Both ends of its link."""
        i = host[-1]
        return f"tc -n {self.id}{i} qdisc", "dev v0 root", f"tc -n {self.id}s qdisc", \
            f"dev p{i} root"

    def lose(self, host, kind):
        if kind != "host cut off":
            return super().lose(host, kind)
        own, device, switch, port = self.ends(host)
        self.say(f"{own} replace {device} blackhole", f"{switch} replace {port} blackhole")
        return bool(self.processes(host))

    def bring_back(self, host):
        own, device, switch, port = self.ends(host)
        for line in f"{own} del {device}", f"{switch} del {port}":
            subprocess.run(line.split(), stderr=subprocess.DEVNULL)  # it may not be cut off
        super().bring_back(host)

    def end(self):
        for i in "129s":
            subprocess.run(["ip", "netns", "del", self.id + i], stderr=subprocess.DEVNULL)
