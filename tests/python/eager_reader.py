"""A live reader that takes everything at once: prints what came so far, until all updates were there.

A process of its own: beside busy threads of Python it would be a slow reader itself.
"""

import base64
import json
import os
import re
import socket
import sys

KINDS = re.compile(rb'"type":"(hello|snapshot|values|event|lagged)"')
# No longer than a match: what may begin in one piece and end in the next.
OVERLAP = len(b'"type":"snapshot"') - 1


def pieces(address):
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=120) as stream:
        key = base64.b64encode(os.urandom(16)).decode()
        stream.sendall(
            f"GET /api/v1/live HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        while piece := stream.recv(1 << 20):
            yield piece


def main(address, updates):
    counts = {"hello": 0, "snapshot": 0, "values": 0, "event": 0, "lagged": 0}
    tail = b""
    for piece in pieces(address):
        text = tail + piece
        end = 0
        for match in KINDS.finditer(text):
            counts[match[1].decode()] += 1
            end = match.end()
        tail = text[max(end, len(text) - OVERLAP) :]
        if counts["snapshot"]:
            print(json.dumps(counts), flush=True)
        # Each stored record is told as values, or shown in a snapshot when its table is new.
        if counts["values"] + counts["snapshot"] > updates or counts["lagged"]:
            break


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
