"""Bodies that schemathesis does not know: bytes as they are."""

import schemathesis


@schemathesis.serializer("application/x-ndjson", "application/vnd.tcpdump.pcap")
def raw(_, value):
    return value if isinstance(value, bytes) else str(value).encode()
