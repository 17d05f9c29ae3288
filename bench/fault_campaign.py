#!/usr/bin/env python3
"""Random faults under --restarts, as many as fit into a time, held against undisturbed bits.

  bench/fault_campaign.py --build build --seconds 600 --results bench/results/faults.jsonl
      [--np 2] [--device cpu] [--hosts | --namespaces] [--memory] [--seed N]
  bench/fault_campaign.py --sum FILE...

Each job is a small training with --restarts. At random moments a rank is killed, crashes or is
stopped, its guard, mpirun or the launcher is killed, or stopped for some seconds; one fault in four
is followed by a second one while the job recovers. After a launcher that was killed the same
command is given again. With --hosts the ranks run on two made-up hosts, which what mpirun calls
instead of ssh starts on this machine; all that runs on one is killed or stopped, and the host is
back after some seconds. With --namespaces (root) the hosts are network namespaces, and are cut off
as well: their link loses everything (fault_hosts.py).

A job that does not end with 0 and the expected weights, does not end at all or leaves processes
behind is a finding. Every few jobs a line with the counts and the seconds lost is appended to the
results file, so that counts add up over days and over campaigns that run side by side (each works
in a folder of its own); --sum prints their sum. The seconds are measured from outside, from the
fault until the job is in the same step again; faults before that count with the first. For a
process beside the ranks that is stopped for a while no seconds are measured.
"""
import argparse, glob, json, os, random, shutil, signal, statistics, subprocess, sys, tempfile, time

from fault_hosts import MadeUpHosts, Namespaces, kill, stat_of, text_of, with_variable

RANK = {"rank killed": signal.SIGKILL, "rank crashed": signal.SIGSEGV,
        "rank stopped": signal.SIGSTOP}
PAUSED = ["guard stopped", "mpirun stopped", "launcher stopped"]  # for some seconds
KINDS = [*RANK, "guard killed", "mpirun killed", "launcher killed", *PAUSED]
MARK = "TESSERA_CAMPAIGN"  # what all processes of a job have in their environment


def is_tessera(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe").endswith("/tessera") and stat_of(pid)[0] != "Z"
    except OSError:
        return False


class Job:
    """One training of the campaign, with all that happens to it."""

    def __init__(self, campaign, place):
        self.campaign, self.place = campaign, place
        os.makedirs(place)
        self.log = open(os.path.join(place, "log"), "ab")
        self.history = []  # faults
        self.away, self.paused = [], []  # (when it is back, host), (when it goes on, process)
        self.pending = None  # of a fault that the job is not back from
        self.start()

    def start(self):
        command = self.campaign.command + ["--set", f"parallel.hang_s={self.campaign.args.hang}",
                                           "--restarts", "1000", "--out", self.place + "/run"]
        if self.campaign.args.memory:
            command += ["--set", "checkpoint.memory_every=5"]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log,
                                        env={**self.campaign.environment, MARK: self.place})

    def folders(self):
        found = glob.glob(f"{self.place}/.ranks-*") + glob.glob(f"{self.place}/run/.ranks-*")

        def age(folder):
            try:
                return os.path.getmtime(folder)
            except OSError:  # it may be removed just now
                return 0
        return sorted(found, key=age)

    def records(self, without=()):
        """What the ranks that run now say of themselves."""
        out = {}
        for folder in self.folders():
            for path in [] if folder in without else glob.glob(folder + "/rank-[0-9]*"):
                try:
                    record = json.loads(text_of(path))
                    if is_tessera(record["pid"]):
                        out[int(path.rpartition("-")[2])] = record
                except (ValueError, KeyError, TypeError):
                    pass
        return out

    def step(self, without=()):
        last = self.records(without).get(0, {}).get("doing", "").rpartition(" ")[2]
        return int(last) if last.isdigit() else -1

    def look(self):
        """Brings hosts back whose time has come, and notes when the job is back in its step."""
        for item in [item for item in self.away if item[0] <= time.time()]:
            self.away.remove(item)
            self.campaign.hosts.bring_back(item[1])
        for item in [item for item in self.paused if item[0] <= time.time()]:
            self.paused.remove(item)
            kill(item[1], signal.SIGCONT)
        if self.pending:
            since, step, without, kinds = self.pending
            ended = self.process.poll() == 0
            if ended or self.step(without) >= max(step, 0):
                self.campaign.back(time.time() - since, kinds)
                self.pending = None

    def pause(self, seconds, until=lambda: False):
        """Looks for so long; whether what was waited for came."""
        end = time.time() + seconds
        while not until():
            if time.time() > end:
                return False
            time.sleep(0.05)
            self.look()
        return True

    def lose_host(self, kind):
        dice, hosts = self.campaign.random, self.campaign.hosts
        host = dice.choice(hosts.names)
        if any(host == gone for _, gone in self.away):
            return False
        self.away.append((time.time() + dice.uniform(0.5, 8), host))
        return hosts.lose(host, kind)

    def process_of(self, what, rank):
        """The launcher, mpirun, or what belongs to a rank; -1: there is none now."""
        if what == "launcher":
            return self.process.pid
        if what == "guard":
            guard = stat_of(rank)[1]
            return guard if is_tessera(guard) else -1
        if what == "mpirun":
            own = [p for p in with_variable(MARK, self.place) if stat_of(p)[1] == self.process.pid]
            own = [p for p in own if b"\0train\0" in text_of(f"/proc/{p}/cmdline")]
            return own[0] if own else -1
        return rank

    def fault(self):
        """One fault at random: its kind, or nothing where there was nobody to meet with it."""
        ranks = self.records()
        if not ranks:
            return None
        dice = self.campaign.random
        kind = dice.choice(self.campaign.kinds)
        folders, step, now = self.folders(), self.step(), time.time()
        if kind.startswith("host "):
            done = self.lose_host(kind)
        else:
            pid = self.process_of(kind.split()[0], ranks[dice.choice(sorted(ranks))]["pid"])
            number = RANK.get(kind, signal.SIGSTOP if kind in PAUSED else signal.SIGKILL)
            done = pid > 0 and kill(pid, number)
            if done and kind in PAUSED:
                self.paused.append((now + dice.uniform(0.5, 8), pid))
        if not done:
            return None
        self.history.append(kind)
        if kind not in PAUSED:
            since, before, _, kinds = self.pending or (now, -1, None, [])
            self.pending = (since, max(before, step), folders, kinds + [kind])
        return kind

    def give_again(self):
        """After a launcher that was killed: the same command, once its ranks have ended."""
        self.process.wait()
        if not self.pause(120, lambda: not self.records()):
            self.campaign.found(self, "ranks have outlived their launcher by two minutes")
            return False
        self.start()
        return True

    def disturb(self, faults, until):
        dice = self.campaign.random
        while self.process.poll() is None and faults > 0 and time.time() < until:
            self.pause(dice.uniform(0.2, 3.0))
            if dice.random() < 0.5:  # else the job may still be on its way back
                self.pause(60, lambda: not self.pending or self.process.poll() is not None)
            for second in (False, True):
                recovers = self.pending is not None
                kind = self.fault()
                if kind is None:
                    break
                faults -= 1
                self.campaign.counts[kind] += 1
                self.campaign.recovering += recovers
                if kind == "launcher killed" and not self.give_again():
                    return False
                if second or dice.random() > 0.25:
                    break
                self.pause(dice.uniform(0.05, 1.5))
        return True

    def finish(self):
        """Waits for its end: whether it is the expected one."""
        if not self.pause(self.campaign.args.patience, lambda: self.process.poll() is not None):
            return self.campaign.found(self, "does not end")
        self.look()
        while self.away:
            self.campaign.hosts.bring_back(self.away.pop()[1])
        if self.process.returncode != 0:
            return self.campaign.found(self, f"ends with {self.process.returncode}")
        if self.campaign.weights(self.place + "/run") != self.campaign.expected:
            return self.campaign.found(self, "has other weights")
        if not self.pause(30, lambda: not with_variable(MARK, self.place)):
            return self.campaign.found(self, "has left processes behind")
        return True

    def clear(self, keep):
        for _, host in self.away:
            self.campaign.hosts.bring_back(host)
        for pid in with_variable(MARK, self.place):
            kill(pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()
        if not keep:
            shutil.rmtree(self.place)


class Campaign:
    """Jobs one after the other, and what became of them since the last line of results."""

    def __init__(self, args):
        self.args, self.random = args, random.Random(args.seed)
        self.work = tempfile.mkdtemp(prefix="tessera_campaign_")
        self.environment = {**os.environ, "TMPDIR": self.work,
                            "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        self.all_findings = self.all_jobs = 0
        batch = max(32, args.np)
        self.command = [
            os.path.abspath(os.path.join(args.build, "tessera")), "train", "--model", "vit_micro",
            "--set", "model.depth=1", "--set", "model.dropout=0.1", "--set",
            f"data.train_size={10 * batch}", "--set", "data.test_size=16", "--global-batch",
            str(batch), "--threads", "1", "--set", "run.eval_every=0", "--device", args.device,
            "--quiet", "--np", str(args.np)]
        self.hosts, self.kinds = None, KINDS
        if args.hosts or args.namespaces:
            hosts = Namespaces if args.namespaces else MadeUpHosts
            self.use_hosts(hosts(self.work, args.np // 2))
        self.begin_line()

    def begin(self):
        if self.hosts:
            self.hosts.make()
        self.measure()

    def end(self):
        if self.hosts:
            self.hosts.end()

    def begin_line(self):
        self.counts, self.lost, self.by_kind = dict.fromkeys(self.kinds, 0), [], {}
        self.findings, self.jobs, self.recovering = [], 0, 0

    def use_hosts(self, hosts):
        self.hosts, self.kinds = hosts, KINDS + hosts.kinds * 2
        self.environment.update(hosts.environment)
        # No smaller layout: the hosts are waited for, and the bits are those of the reference.
        self.command[-1] = f"{self.args.np}:{self.args.np}"
        self.command += ["--hostfile", hosts.file, "--set", "run.host_wait_s=120"]
        self.command = hosts.begin + self.command

    def measure(self):
        """The undisturbed run, as long as this machine takes for so many seconds."""
        def run(steps, name):
            out, begin = os.path.join(self.work, name), time.time()
            subprocess.run(self.command + ["--steps", str(steps), "--set", "checkpoint.every=100",
                                           "--set", "parallel.hang_s=120", "--out", out],
                           check=True, env=self.environment)
            return time.time() - begin
        if not self.args.steps:  # the difference of two lengths is without the start
            short, long = run(20, "short"), run(120, "long")
            step = max((long - short) / 100, long / 1200)
            self.args.steps = max(100, int(self.args.length / step))
        run(self.args.steps, "reference")
        self.expected = self.weights(os.path.join(self.work, "reference"))
        self.command += ["--steps", str(self.args.steps), "--set",
                         f"checkpoint.every={max(5, self.args.steps // 30)}"]

    def weights(self, run):
        return text_of(os.path.join(run, "weights.safetensors"))

    def back(self, seconds, kinds):
        self.lost.append(round(seconds, 1))
        if len(kinds) == 1:
            self.by_kind.setdefault(kinds[0], []).append(round(seconds, 1))

    def found(self, job, what):
        self.findings.append({"what": what, "faults": job.history})
        self.all_findings += 1
        left = [text_of(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")
                for pid in with_variable(MARK, job.place)]
        said = text_of(os.path.join(job.place, "log")).decode(errors="replace")
        print(f"FINDING in {job.place}: it {what}; faults {job.history}; its processes: {left}\n"
              f"{said[-6000:]}", flush=True)
        return False

    def one_job(self, until):
        self.jobs += 1
        self.all_jobs += 1
        job = Job(self, os.path.join(self.work, f"job{self.all_jobs}"))
        held = False
        try:
            held = job.disturb(self.random.randint(3, 10), until) and job.finish()
        finally:  # also when the campaign is asked to stop
            job.clear(keep=not held)

    def end_line(self):
        lost = sorted(self.lost)
        result = {
            "date": time.strftime("%F"), "seed": self.args.seed, "np": self.args.np,
            "device": self.args.device, "hosts": type(self.hosts).__name__ if self.hosts else False,
            "memory": self.args.memory,
            "steps": self.args.steps, "jobs": self.jobs, "faults": sum(self.counts.values()),
            "while_recovering": self.recovering, "kinds": self.counts,
            "findings": len(self.findings), "found": self.findings, "recoveries": len(lost),
            "median_s": round(statistics.median(lost), 1) if lost else None,
            "longest_s": lost[-1] if lost else None, "lost_s": lost, "lost_by_kind": self.by_kind}
        if self.args.results:
            with open(self.args.results, "a") as file:
                file.write(json.dumps(result) + "\n")
        print(json.dumps({k: v for k, v in result.items() if not k.startswith("lost_")}),
              flush=True)
        self.begin_line()


def print_sum(paths):
    rows = [json.loads(line) for path in paths for line in open(path)]

    def total(key, rows=rows):
        return sum(row[key] for row in rows)
    kinds, by_kind = {}, {}
    for row in rows:
        for kind, count in row["kinds"].items():
            kinds[kind] = kinds.get(kind, 0) + count
        for kind, lost in row.get("lost_by_kind", {}).items():
            by_kind.setdefault(kind, []).extend(lost)
    print(f"{total('faults')} faults in {total('jobs')} jobs, {total('while_recovering')} of them "
          f"while a job recovered, {total('findings')} findings")
    # Older lines have what the launcher printed, newer ones the time until the same step again.
    for what, own in (("said by the launcher", [r for r in rows if "lost_by_kind" not in r]),
                      ("until the same step", [r for r in rows if "lost_by_kind" in r])):
        lost = sorted(s for row in own for s in row["lost_s"])
        if lost:
            print(f"  {len(lost)} recoveries, seconds lost, {what}: "
                  f"median {statistics.median(lost):.1f}, longest {lost[-1]:.1f}")
    for kind, count in sorted(kinds.items()):
        alone = by_kind.get(kind, [])
        seconds = f"; {len(alone)} alone, median {statistics.median(alone):.1f} s, longest " \
                  f"{max(alone):.1f} s" if alone else ""
        print(f"  {count} x {kind}{seconds}")
    settings = {}
    for row in rows:
        setting = f"{row.get('np', 2)} ranks on {row.get('device', 'cpu')}"
        setting += {False: "", "Namespaces": " of two network namespaces"}.get(
            row.get("hosts", False), " of two made-up hosts")
        setting += ", checkpoints in memory" if row["memory"] else ""
        settings.setdefault(setting, []).append(row)
    for setting, own in settings.items():
        print(f"  {setting}: {total('faults', own)} faults, {total('findings', own)} findings")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--steps", type=int, default=0, help="of a job (0: as --length says)")
    parser.add_argument("--length", type=float, default=12, help="seconds of an undisturbed job")
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--hang", type=float, default=1, help="parallel.hang_s")
    parser.add_argument("--patience", type=float, default=300, help="seconds until a job ends")
    parser.add_argument("--hosts", action="store_true", help="on two hosts that come and go")
    parser.add_argument("--namespaces", action="store_true", help="that are also cut off (root)")
    parser.add_argument("--memory", action="store_true", help="with checkpoints in memory")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--every", type=int, default=5, help="jobs until a line is written")
    parser.add_argument("--results", help="file that lines are appended to")
    parser.add_argument("--sum", metavar="FILE", nargs="+", help="only add up results files")
    args = parser.parse_args()
    if args.sum:
        return print_sum(args.sum)
    if (args.hosts or args.namespaces) and args.np % 2:
        parser.error(f"--hosts shares the ranks out to two hosts: --np {args.np} is odd")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    campaign = Campaign(args)
    try:
        campaign.begin()
        until = time.time() + args.seconds
        while time.time() < until:
            campaign.one_job(until)
            if campaign.jobs >= args.every:
                campaign.end_line()
        if campaign.jobs:
            campaign.end_line()
    finally:
        campaign.end()
    if not campaign.all_findings:
        shutil.rmtree(campaign.work)
    sys.exit(1 if campaign.all_findings else 0)


main()
