#!/usr/bin/env python3
"""Random faults under --restarts, as many as fit into a time, each job held against the bits of one that nobody disturbed.

  bench/fault_campaign.py --build build --seconds 600 --results bench/results/faults.jsonl [--memory] [--seed N]

Each job is a small training of two ranks with --restarts. At random moments a rank is killed, crashes or is stopped, its guard, mpirun or
the launcher is killed; one fault in four is followed by a second one while the job recovers. After a launcher that was killed the same
command is given again. A job that does not end with 0 and the expected weights is a finding. A line with the counts and the times that
the launcher printed is appended to the results file, so that counts add up over several days; --sum prints their sum.
"""
import argparse, glob, json, os, random, re, shutil, signal, statistics, subprocess, sys, tempfile, time

KINDS = ["rank killed", "rank crashed", "rank stopped", "guard killed", "mpirun killed", "launcher killed"]


def parent_of(pid):
    try:
        return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return -1


def records(place):
    """The ranks of the job that runs now, from its newest folder of heartbeats: rank -> process."""
    out = {}
    folders = glob.glob(f"{place}/.ranks-*") + glob.glob(f"{place}/run/.ranks-*")
    for folder in sorted(folders, key=lambda f: os.path.getmtime(f) if os.path.exists(f) else 0):
        for path in glob.glob(folder + "/rank-[0-9]"):
            try:
                out[int(path[-1])] = json.loads(open(path).read())["pid"]
            except (OSError, ValueError, KeyError):
                pass
    return out


def kill(pid, number):
    if pid > 1:
        try:
            os.kill(pid, number)
            return True
        except ProcessLookupError:
            pass
    return False


class Campaign:
    def __init__(self, args):
        self.args, self.random = args, random.Random(args.seed)
        self.counts, self.lost, self.findings, self.jobs = {kind: 0 for kind in KINDS}, [], [], 0
        self.second = 0
        self.work = tempfile.mkdtemp(prefix="tessera_campaign_")
        self.command = [os.path.join(args.build, "tessera"), "train", "--model", "vit_micro", "--set", "model.depth=1", "--set",
                        "model.dropout=0.1", "--set", "data.train_size=320", "--set", "data.test_size=16", "--global-batch", "32",
                        "--threads", "1", "--set", "run.eval_every=0", "--set", "checkpoint.every=20", "--set", "parallel.hang_s=1",
                        "--quiet", "--np", "2", "--steps", str(args.steps)]
        self.reference = os.path.join(self.work, "reference")
        subprocess.run(self.command + ["--out", self.reference], check=True)

    def weights(self, run):
        try:
            return open(os.path.join(run, "weights.safetensors"), "rb").read()
        except OSError:
            return b""

    def start(self, place, log):
        more = ["--restarts", "1000", "--out", os.path.join(place, "run")]
        if self.args.memory:
            more += ["--set", "checkpoint.memory_every=5"]
        return subprocess.Popen(self.command + more, stdout=log, stderr=log)

    def fault(self, place, job):
        ranks = records(place)
        if not ranks:
            return None
        kind = self.random.choice(KINDS)
        pid = ranks[self.random.choice(sorted(ranks))]
        guard = parent_of(pid)
        if kind == "launcher killed":
            done = kill(job.pid, signal.SIGKILL)
        elif kind == "mpirun killed":
            done = kill(parent_of(guard), signal.SIGKILL) if guard > 1 and parent_of(guard) != job.pid else False
        elif kind == "guard killed":
            done = kill(guard, signal.SIGKILL)
        else:
            number = {"rank killed": signal.SIGKILL, "rank crashed": signal.SIGSEGV, "rank stopped": signal.SIGSTOP}[kind]
            done = kill(pid, number)
        if done:
            self.counts[kind] += 1
        return kind if done else None

    def one_job(self, until):
        self.jobs += 1
        place = os.path.join(self.work, f"job{self.jobs}")
        os.makedirs(place)
        log = open(os.path.join(place, "log"), "ab")
        job, history = self.start(place, log), []
        faults = self.random.randint(2, 6)
        while job.poll() is None and faults > 0 and time.time() < until:
            time.sleep(self.random.uniform(0.2, 4.0))
            for second in (False, True):
                kind = self.fault(place, job)
                if kind is None:
                    break
                faults -= 1
                history.append(kind)
                self.second += second
                if kind == "launcher killed":
                    job.wait()
                    while any(os.path.exists(f"/proc/{pid}") for pid in records(place).values()):
                        time.sleep(0.1)
                    job = self.start(place, log)
                if second or self.random.random() > 0.25:
                    break
                time.sleep(self.random.uniform(0.05, 1.5))
        code = job.wait(timeout=900)
        text = open(os.path.join(place, "log"), errors="replace").read()
        self.lost += [float(s) for s in re.findall(r"again; lost ([0-9.]+) s", text)]
        if code != 0 or self.weights(os.path.join(place, "run")) != self.weights(self.reference):
            self.findings.append({"code": code, "faults": history, "log": text[-3000:]})
            print(f"FINDING in {place}: {history}, exit code {code}\n{text[-3000:]}", flush=True)
        else:
            shutil.rmtree(place)

    def result(self):
        lost = sorted(self.lost)
        return {"date": time.strftime("%F"), "seed": self.args.seed, "memory": self.args.memory, "jobs": self.jobs,
                "faults": sum(self.counts.values()), "while_recovering": self.second, "kinds": self.counts,
                "findings": len(self.findings), "recoveries": len(lost), "median_s": statistics.median(lost) if lost else None,
                "longest_s": lost[-1] if lost else None, "lost_s": lost}


def print_sum(path):
    rows = [json.loads(line) for line in open(path)]
    lost = sorted(s for row in rows for s in row["lost_s"])
    print(f"{sum(r['faults'] for r in rows)} faults in {sum(r['jobs'] for r in rows)} jobs, "
          f"{sum(r['while_recovering'] for r in rows)} of them while a job recovered, {sum(r['findings'] for r in rows)} findings; "
          f"{len(lost)} recoveries, seconds lost: median {statistics.median(lost):.1f}, longest {lost[-1]:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--memory", action="store_true", help="with checkpoints in memory")
    parser.add_argument("--results", help="file that a line is appended to")
    parser.add_argument("--sum", metavar="FILE", help="only add up the lines of a results file")
    args = parser.parse_args()
    if args.sum:
        return print_sum(args.sum)
    campaign, until = Campaign(args), time.time() + args.seconds
    while time.time() < until:
        campaign.one_job(until)
    result = campaign.result()
    print(json.dumps({key: value for key, value in result.items() if key != "lost_s"}, indent=1))
    if args.results:
        with open(args.results, "a") as file:
            file.write(json.dumps(result) + "\n")
    if not campaign.findings:
        shutil.rmtree(campaign.work)
    sys.exit(1 if campaign.findings else 0)


main()
