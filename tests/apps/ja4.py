"""FoxIO's captures and the fingerprints of clients (JA4) that they have by FoxIO's own programs."""

import collections
import json

from replayed import Result, events


def expected(path):
    """Fingerprints by client, server and the client's port."""
    found = collections.defaultdict(list)
    for stream in json.loads(path.read_text()):
        ends = (stream["src"], stream["srcport"], stream["dst"], stream["dstport"])
        found[ends] += [text for key, text in stream.items() if key.startswith("JA4.")]
    return found


def results(skua, checkout):
    """The result of each fingerprint that must be there."""
    for path in sorted((checkout / "python/test/testdata").glob("*.json")):
        capture = checkout / "pcap" / path.name.removesuffix(".json")
        wanted = {ends: prints for ends, prints in expected(path).items() if prints}
        if not wanted or not capture.exists():
            continue
        try:
            lines = events(skua, capture)
        except ValueError as refused:
            yield Result(capture.name, "file", why=str(refused))
            continue
        seen = collections.defaultdict(list)
        for line in lines:
            print_ = line.get("tls", {}).get("ja4") or line.get("quic", {}).get("ja4")
            if print_:
                ends = (line["src_ip"], str(line["src_port"]), line["dest_ip"], str(line["dest_port"]))
                seen[ends].append(print_)
        for ends, prints in wanted.items():
            for number, print_ in enumerate(prints, 1):
                kind = {"t": "TLS", "q": "QUIC", "d": "DTLS"}[print_[0]]
                result = Result(f"{capture.name} {ends[0]}:{ends[1]} {number}", kind, print_ in seen[ends])
                result.why = f"{print_} instead of {', '.join(seen[ends]) or 'nothing'}"
                yield result
