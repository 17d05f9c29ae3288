#!/usr/bin/env python3
"""Makes what comes to a network namespace over a device late, for kernels without netem:

    tests/cluster/delay.py NAMESPACE DEVICE MILLISECONDS      (root; until it is killed)

A rule of iptables hands each packet over to a queue of the kernel (NFQUEUE), and this process lets
go of it so many milliseconds later, in order. Bytes stay where they are: only numbers of packets
come here, and packets of 64 KB count as one, so that 10 Gb/s pass. It is at the receiver, since a
sender's TCP waits for packets that have not left it. `ready` is printed when the rule is there; it
goes with the namespace, or when this process is asked to end.
"""
import collections, ctypes, os, select, signal, socket, struct, subprocess, sys, time

CLONE_NEWNET, NETLINK_NETFILTER = 0x40000000, 12
PACKET, CONFIG, VERDICTS = 3 << 8 | 0, 3 << 8 | 2, 3 << 8 | 3  # of the kernel's queues
REQUEST, BIND, COPY_META, ACCEPT = 1, 1, 1, 1
NUMBER = 1  # of the queue, in its namespace
MOST_WAITING = 100000  # packets; what comes while so many wait is lost, as in a switch
HEAD = 20  # bytes before the attributes of a message
LARGE_PACKETS = 4  # NFQA_CFG_F_GSO


def message(kind, *attributes):
    body = b"".join(struct.pack("=HH", 4 + len(data), name) + data + bytes(-len(data) % 4)
                    for name, data in attributes)
    return struct.pack("=IHHIIBBH", HEAD + len(body), kind, REQUEST, 0, 0, 0, 0,
                       socket.htons(NUMBER)) + body


def numbers(block):
    """The packets that a block of messages tells of; the first attribute of each has its number."""
    at = 0
    while at + HEAD <= len(block):
        length, kind = struct.unpack_from("=IH", block, at)
        if kind == PACKET and length >= HEAD + 8:
            yield struct.unpack_from(">I", block, at + HEAD + 4)[0]
        at += max(HEAD, length + 3 & ~3)


def open_queue():
    queue = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    queue.bind((0, 0))
    queue.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
    queue.setsockopt(270, 5, struct.pack("i", 1))  # NETLINK_NO_ENOBUFS: none is told of twice
    queue.send(message(CONFIG, (1, struct.pack(">BBH", BIND, 0, socket.AF_INET))))
    queue.send(message(CONFIG, (2, struct.pack(">IB", 0, COPY_META))))
    queue.send(message(CONFIG, (3, struct.pack(">I", MOST_WAITING))))
    queue.send(message(CONFIG, (4, struct.pack(">I", LARGE_PACKETS)),
                       (5, struct.pack(">I", LARGE_PACKETS))))
    queue.setblocking(False)
    return queue


def rule(action, device):
    subprocess.run(["iptables", "-w", "-t", "mangle", action, "PREROUTING", "-i", device, "-j",
                    "NFQUEUE", "--queue-num", str(NUMBER)], check=True)


def hand_on(queue, late):
    waiting = collections.deque()  # (when it is due, the number of a packet and of all before it)
    while True:
        timeout = max(0, waiting[0][0] - time.monotonic()) if waiting else None
        if select.select([queue], [], [], timeout)[0]:
            newest = None
            try:
                while True:
                    for newest in numbers(queue.recv(1 << 20)):
                        pass
            except BlockingIOError:
                pass
            if newest is not None:
                waiting.append((time.monotonic() + late, newest))
        due = None
        while waiting and waiting[0][0] <= time.monotonic():
            due = waiting.popleft()[1]
        if due is not None:
            queue.send(message(VERDICTS, (2, struct.pack(">II", ACCEPT, due))))


def main():
    namespace, device, milliseconds = sys.argv[1:]
    with open(f"/run/netns/{namespace}") as place:
        if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    try:  # it has little to do, and is punctual where others compute
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        pass
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    queue = open_queue()
    rule("-A", device)
    print("ready", flush=True)
    try:
        hand_on(queue, float(milliseconds) / 1000)
    finally:
        rule("-D", device)


main()
