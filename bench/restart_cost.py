#!/usr/bin/env python3
"""What a lost rank or host costs a large model, from checkpoints in memory and on disk.

  bench/restart_cost.py --build build [--model vit_b_16] [--how memory,host,disk] [--rounds 1]

A training of two ranks on two made-up hosts (fault_hosts.py) runs under --restarts. Soon after its
sixth step one rank is killed, or all that runs on the second host, whose memory is taken away, too.
The job goes on from the newest checkpoint in memory or, without that level, on disk, and must end
with the bits of a run that nobody disturbed. Printed is what the launcher says of the loss, and how
long the first checkpoint in memory took.
"""
import argparse, glob, json, os, re, shutil, signal, subprocess, sys, tempfile, time

from fault_hosts import MadeUpHosts, kill, text_of

NAMES = {"memory": "a rank is killed; checkpoints in memory",
         "host": "a host is lost with its memory; checkpoints in memory",
         "disk": "a rank is killed; checkpoints on disk"}


class Bench:
    def __init__(self, args, work):
        self.args, self.work = args, work
        self.hosts = MadeUpHosts(work, 1)
        self.environment = {**os.environ, **self.hosts.environment, "TMPDIR": work,
                            "OMPI_MCA_rmaps_base_oversubscribe": "1"}

    def command(self, out, *more):
        return [os.path.abspath(os.path.join(self.args.build, "tessera")), "train", "--model",
                self.args.model, "--data", self.args.data, "--set", "data.train_size=64", "--set",
                "data.test_size=2", "--global-batch", "2", "--threads", "1", "--set",
                "run.eval_every=0", "--set", "checkpoint.keep_best=false", "--set", "run.trace=0",
                "--steps", str(self.args.steps), "--np", "2:2", "--hostfile", self.hosts.file,
                "--quiet", "--out", out, *more]

    def undisturbed(self):
        out = self.work + "/undisturbed"
        subprocess.run(self.command(out, "--set", "checkpoint.every=1000000"), check=True,
                       env=self.environment)
        return text_of(out + "/weights.safetensors")

    def rank(self, out, rank):
        for path in glob.glob(f"{out}/.ranks-*/rank-{rank}") + glob.glob(
                f"{self.work}/.ranks-*/rank-{rank}"):
            try:
                return json.loads(text_of(path))
            except ValueError:  # it is being written
                pass
        return {}

    def step(self, out):
        last = self.rank(out, 0).get("doing", "").rpartition(" ")[2]
        return int(last) if last.isdigit() else -1

    def disturb(self, how, out):
        if how != "host":
            pid = self.rank(out, 1).get("pid")  # none: the job has ended meanwhile
            return pid and kill(pid, signal.SIGKILL)
        lost = self.hosts.names[1]
        for pid in self.hosts.processes(lost):
            kill(pid, signal.SIGKILL)
        for folder in glob.glob(f"/dev/shm/tessera-memory-*.{lost}"):
            shutil.rmtree(folder, ignore_errors=True)

    def lose(self, how):
        """What the launcher and the ranks said."""
        out = f"{self.work}/{how}"
        shutil.rmtree(out, ignore_errors=True)
        every = str(self.args.every)
        sets = ["--restarts", "2", "--set", "checkpoint.every=" + every] if how == "disk" else [
            "--restarts", "2", "--set", "checkpoint.memory_every=" + every, "--set",
            "checkpoint.every=1000000"]
        with open(out + ".log", "wb") as log:
            job = subprocess.Popen(self.command(out, *sets), env=self.environment, stdout=log,
                                   stderr=log)
            try:
                while self.step(out) < 6 and job.poll() is None:
                    time.sleep(0.05)
                time.sleep(self.args.after)
                if job.poll() is None:
                    self.disturb(how, out)
                code = job.wait()
            finally:
                job.kill()
        said = text_of(out + ".log").decode(errors="replace") + text_of(
            out + "/log.txt").decode(errors="replace")
        if code != 0 or "restart 1: in step" not in said:
            sys.exit(f"{NAMES[how]}: exit status {code}, the job was not disturbed in its sixth "
                     f"step or did not go on\n{said}")
        return said, text_of(out + "/weights.safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--model", default="vit_b_16")
    parser.add_argument("--data", default="synthetic:224x224x3,1000")
    parser.add_argument("--how", default="memory,host,disk", help="of " + ", ".join(NAMES))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--every", type=int, default=2, help="steps from checkpoint to checkpoint")
    parser.add_argument("--after", type=float, default=0.3, help="seconds into the sixth step")
    parser.add_argument("--undisturbed", help="weights of an undisturbed run (made once)")
    args = parser.parse_args()
    work = tempfile.mkdtemp(prefix="tessera_restart_")
    try:
        bench = Bench(args, work)
        expected = args.undisturbed and text_of(args.undisturbed)
        if not expected:
            expected = bench.undisturbed()
            if args.undisturbed:
                with open(args.undisturbed, "wb") as file:
                    file.write(expected)
        for how in [how for _ in range(args.rounds) for how in args.how.split(",")]:
            said, weights = bench.lose(how)
            lost = re.search(r"restart 1: in (.*)", said).group(1)
            notes = re.findall(r"[0-9.]+ ms for the first|goes on from the checkpoint.*", said)
            print("; ".join([f"{NAMES[how]}: in {lost}", *dict.fromkeys(notes)] +
                            ([] if weights == expected else ["OTHER WEIGHTS"])), flush=True)
            if weights != expected:
                sys.exit(1)
    finally:
        shutil.rmtree(work, ignore_errors=True)


main()
