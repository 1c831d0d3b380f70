"""Datagrams of sFlow, read after docs/wire.md and nothing else: what is in them, by which others are judged."""

import ipaddress
import struct
from dataclasses import dataclass, field

OURS = 32473


@dataclass
class Sample:
    """A flow sample: one side's packets of a conversation."""

    source: str = ""
    destination: str = ""
    ports: tuple = ()
    protocol: int = 0
    # Packets that it stands for, and the length of each.
    rate: int = 0
    length: int = 0
    # Where they came in, and went out: ifIndex, 0 not known.
    interfaces: tuple = ()
    # Values of 0:2209 in their order; None: it is not there.
    tcp: tuple = None
    # Of 0:1043, ns.
    time: int = None
    # (enterprise, format) of each record.
    tags: list = field(default_factory=list)
    ended: bool = False
    # Packets and bytes of the source and the destination in 32473:1 that were not told before.
    new: tuple = None
    new_bytes: tuple = None
    # 32473:7: the other direction of the conversation of the sample before.
    reverse: bool = False

    def key(self):
        return self.source, self.destination, *self.ports, self.protocol

    def shown(self):
        """What readers show of it."""
        return *self.key(), self.rate, self.length, *self.interfaces


class Bytes:
    """A cursor that never reads beyond its end."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, length):
        if self.at + length > len(self.data):
            raise ValueError(f"{length} bytes at {self.at} of {len(self.data)}")
        self.at += length
        return self.data[self.at - length:self.at]

    def words(self, count):
        return struct.unpack(f">{count}I", self.take(4 * count))

    def end(self):
        if self.at != len(self.data):
            raise ValueError(f"{len(self.data) - self.at} bytes behind the last")

    def part(self):
        """A tag, and what belongs to it."""
        tag, length = self.words(2)
        return (tag >> 12, tag & 0xfff), Bytes(self.take(length))


def flow(body, expanded):
    sample = Sample()
    # Sequence number and source, then rate; pool, drops, interfaces; how many records.
    words = body.words(11 if expanded else 8)
    sample.rate, count = words[3 if expanded else 2], words[-1]
    # Format and value of each, in one word or two.
    ports = zip(words[-5:-1:2], words[-4:-1:2]) if expanded else [(word >> 30, word & 0x3fff_ffff) for word in words[-3:-1]]
    sample.interfaces = tuple(value if form == 0 else None for form, value in ports)
    for _ in range(count):
        tag, record = body.part()
        sample.tags.append(tag)
        if tag in [(0, 3), (0, 4)]:
            sample.length, sample.protocol = record.words(2)
            size = 4 if tag == (0, 3) else 16
            sample.source, sample.destination = (str(ipaddress.ip_address(record.take(size))) for _ in range(2))
            sample.ports = record.words(2)
        elif tag == (0, 2209):
            sample.tcp = record.words(12)
        elif tag == (0, 1043):
            sample.time = struct.unpack(">Q", record.take(8))[0]
        elif tag == (OURS, 1):
            sample.ended = record.take(4)[2] != 0
            record.take(60)
            sample.new, sample.new_bytes = record.words(2), record.words(2)
        elif tag == (OURS, 7):
            sample.reverse = True
    return sample


def read(datagram):
    """Its flow samples; everything in it is of the length that it says."""
    cursor = Bytes(datagram)
    version, family = cursor.words(2)
    if version != 5:
        raise ValueError(f"version {version}")
    cursor.take({1: 4, 2: 16}[family])
    *_, count = cursor.words(4)
    samples = []
    for _ in range(count):
        tag, body = cursor.part()
        if tag in [(0, 1), (0, 3)]:
            samples.append(flow(body, tag == (0, 3)))
        elif tag == (0, 2):
            *_, records = body.words(3)
            for _ in range(records):
                body.part()
        else:
            raise ValueError(f"sample {tag}")
        body.end()
    cursor.end()
    return samples
