#!/usr/bin/env python3
"""A cable between two network namespaces that is late in one direction, for kernels without netem:

    tests/cluster/delay.py FROM DEVICE TO DEVICE MILLISECONDS      (root; until it is killed)

Both devices are made here (tap), and go with this process; `ready` is printed when they are there.
Frames from the first namespace come to the second one so many milliseconds later, those of the
other direction at once.
"""
import collections, ctypes, fcntl, os, select, struct, sys, time

TUNSETIFF, IFF_TAP, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0002, 0x1000, 0x40000000
FRAME = 65536
MOST_WAITING = 20000  # frames; what comes while so many wait is lost, as in a switch


def tap(namespace, device):
    with open(f"/run/netns/{namespace}") as place:
        if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TAP | IFF_NO_PI))
    return end


def frames(end):
    while True:
        try:
            yield os.read(end, FRAME)
        except OSError:  # none is there, or the device is down
            return


def give(end, frame):
    try:
        os.write(end, frame)
    except OSError:  # the device is down or full: a cable may lose what it carries
        pass


def main():
    near, far = tap(sys.argv[1], sys.argv[2]), tap(sys.argv[3], sys.argv[4])
    late = float(sys.argv[5]) / 1000
    print("ready", flush=True)
    waiting = collections.deque()  # (when it is due, frame)
    while True:
        timeout = max(0, waiting[0][0] - time.monotonic()) if waiting else None
        select.select([near, far], [], [], timeout)
        for frame in frames(far):
            give(near, frame)
        for frame in frames(near):
            if len(waiting) < MOST_WAITING:
                waiting.append((time.monotonic() + late, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            give(far, waiting.popleft()[1])


main()
