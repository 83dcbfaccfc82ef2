"""A client in Python, from docs/protocol.md and the .proto files alone: it enrolls, checks in,
adopts what it is offered, subscribes over a stock grpcio and resyncs.

Usage: client.py PROTO_DIRECTORY HOSTNAME MODE KIND TOKEN
It prints one line for each thing that it did, waits for a line on its standard input once it has
adopted, and fails with a traceback at the first thing that is not as the page says.
"""

import base64
import hashlib
import json
import os
import queue
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import h2.connection
import h2.events
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

PREFIX = "dev.muster.event."
ZERO = bytes(32)


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def lp(text):
    data = text.encode()
    return len(data).to_bytes(4, "big") + data


# Sets and proofs.


def leaf(kind, namespace, name, uid, digest):
    return sha256(b"\x00", lp(kind), lp(namespace), lp(name), lp(uid), digest)


def nibble(place, depth):
    byte = place[depth // 2]
    return byte >> 4 if depth % 2 == 0 else byte & 15


def pair(left, right):
    return sha256(b"\x01n", left, right)


def bucket(pairs):
    return sha256(b"\x01b", *(part for one in pairs for part in one)) if pairs else ZERO


def branch(children):
    while len(children) > 1:
        children = [pair(left, right) for left, right in zip(children[::2], children[1::2])]
    return children[0]


def trie(pairs, depth=0):
    """The hash of the subtree of these (H(name), leaf), which are in order."""
    if len(pairs) <= 8:
        return bucket(pairs)
    return branch([trie([p for p in pairs if nibble(p[0], depth) == n], depth + 1) for n in range(16)])


def set_root(objects):
    """The root of {(kind, namespace, name): (uid, digest)}."""
    sections = {}
    for (kind, namespace, name), (uid, digest) in objects.items():
        one = (sha256(name.encode()), leaf(kind, namespace, name, uid, digest))
        sections.setdefault((kind, namespace), []).append(one)
    parts = [lp(kind) + lp(namespace) + trie(sorted(sections[kind, namespace])) for kind, namespace in sorted(sections)]
    return sha256(b"\x02", *parts)


def verify_proof(proof, hostname, entry, selection):
    """The exact entry of this host leads to the selection root."""
    hashes = lambda text: [base64.b64decode(text)[at : at + 32] for at in range(0, len(base64.b64decode(text)), 32)]
    place, path, pairs = sha256(hostname.encode()), hashes(proof["path"]), hashes(proof["bucket"])
    pairs = list(zip(pairs[::2], pairs[1::2]))
    own = leaf("Selection", "", hostname, entry["channel"], bytes.fromhex(entry["root"]))
    assert (place, own) in pairs, "the bucket holds this host's entry"
    found = bucket(pairs)
    for depth in reversed(range(len(path) // 4)):
        at = nibble(place, depth)
        for level in range(4):
            sibling = path[depth * 4 + level]
            found = pair(sibling, found) if at >> level & 1 else pair(found, sibling)
    assert sha256(b"\x03", found, bytes.fromhex(proof["patternsDigest"])) == selection, "the proof leads to the root"


def verify_signed(signed, kind, public):
    """The document of a signed text, once one of its signatures is found good."""
    payload = signed["payload"].encode()
    message = b"muster-signed-1\0"
    for part in (kind.encode(), payload):
        message += len(part).to_bytes(8, "big") + part
    algorithm, raw = public.split(":")
    assert algorithm == "ed25519"
    raw = base64.b64decode(raw)
    named = [one["sig"] for one in signed["signatures"] if one["key"] == sha256(raw)[:8].hex()]
    Ed25519PublicKey.from_public_bytes(raw).verify(base64.b64decode(named[0]), message)
    return json.loads(payload)


# HTTP/2 with the headers of the protocol.


class Https:
    def __init__(self, url, context):
        at = urlsplit(url)
        context.set_alpn_protocols(["h2"])
        raw = socket.create_connection((at.hostname, at.port), timeout=30)
        self.socket = context.wrap_socket(raw, server_hostname=at.hostname)
        self.authority = at.netloc
        self.http = h2.connection.H2Connection()
        self.http.initiate_connection()
        self.flush()

    def flush(self):
        self.socket.sendall(self.http.data_to_send())

    def call(self, method, path, body, headers):
        stream = self.http.get_next_available_stream_id()
        head = [(":method", method), (":path", path), (":scheme", "https"), (":authority", self.authority)]
        head += [("muster-protocol", "1"), ("content-type", "application/json"), *headers]
        self.http.send_headers(stream, head, end_stream=not body)
        if body:
            self.http.send_data(stream, body, end_stream=True)
        self.flush()
        status, answer = None, b""
        while True:
            data = self.socket.recv(65536)
            assert data, "the connection ended before its answer"
            for event in self.http.receive_data(data):
                if isinstance(event, h2.events.ResponseReceived):
                    status = int(dict(event.headers)[b":status"])
                elif isinstance(event, h2.events.DataReceived):
                    answer += event.data
                    self.http.acknowledge_received_data(event.flow_controlled_length, stream)
                elif isinstance(event, h2.events.StreamEnded):
                    self.flush()
                    return status, json.loads(answer)
            self.flush()


def pinned_ca(url, digest):
    """The CA certificate that a token names, out of the chain that the server shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    at = urlsplit(url)
    with socket.create_connection((at.hostname, at.port), timeout=30) as raw:
        with context.wrap_socket(raw, server_hostname=at.hostname) as session:
            # Public from Python 3.13 on.
            shown = getattr(session, "get_unverified_chain", None) or session._sslobj.get_unverified_chain
            chain = [one if isinstance(one, bytes) else ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in shown()]
    return next(ssl.DER_cert_to_PEM_cert(one) for one in chain if sha256(one).hex() == digest)


class Node:
    def __init__(self, hostname, token):
        self.hostname = hostname
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        self.url = claims["servers"][0]
        ca = pinned_ca(self.url, claims["ca"])
        self.key = Ed25519PrivateKey.generate()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hostname)])
        csr = x509.CertificateSigningRequestBuilder().subject_name(name).sign(self.key, None)
        csr = csr.public_bytes(serialization.Encoding.PEM).decode()
        ask = canonical({"token": token, "hostname": hostname, "csrPem": csr})
        status, answer = Https(self.url, ssl.create_default_context(cadata=ca)).call("POST", "/v1/enroll", ask, [])
        assert status == 200, answer
        self.ca, self.cert, self.trust = answer["caPem"], answer["certPem"], answer["trust"]
        assert sha256(canonical(self.trust)).hex() == claims["trust"], "the trust document is the token's"
        raw = self.key.public_key().public_bytes_raw()
        self.id = answer["nodeId"]
        assert self.id == "n-" + sha256(b"muster node id\0", raw).hex()[:32], "the node id is the key's"
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        self.private = self.key.private_bytes(*form)
        context = ssl.create_default_context(cadata=self.ca)
        with tempfile.TemporaryDirectory() as directory:
            chain = Path(directory, "chain.pem")
            chain.touch(mode=0o600)
            chain.write_bytes(self.private + self.cert.encode())
            context.load_cert_chain(chain)
        self.https, self.number = Https(self.url, context), 0

    def call(self, method, path, message=None):
        body = b"" if message is None else canonical(message)
        bare, _, query = path.partition("?")
        self.number = max(self.number + 1, time.time_ns() // 1000)
        lines = [f'"@method": {method}', f'"@path": {bare}', f'"@query": ?{query}']
        covered, headers = ['"@method"', '"@path"', '"@query"'], []
        if body:
            digest = f"sha-256=:{base64.b64encode(sha256(body)).decode()}:"
            covered.append('"content-digest"')
            lines.append(f'"content-digest": {digest}')
            headers.append(("content-digest", digest))
        params = f'({" ".join(covered)});created={int(time.time())};nonce="{self.number:016x}"'
        params += f';keyid="{self.id}";alg="ed25519";tag="{self.trust["fleet"]}"'
        lines.append(f'"@signature-params": {params}')
        signature = base64.b64encode(self.key.sign("\n".join(lines).encode())).decode()
        headers += [("signature-input", f"muster={params}"), ("signature", f"muster=:{signature}:")]
        status, answer = self.https.call(method, path, body, headers)
        assert status == 200, answer
        return answer

    def adopt(self, offer):
        """Judges an offer as the page says, and gives what a check-in then holds."""
        header = verify_signed(offer["header"], "release-header", self.trust["release"]["current"])
        entry = offer["entry"]
        assert (header["fleet"], header["channel"]) == (self.trust["fleet"], entry["channel"])
        verify_proof(offer["proof"], self.hostname, entry, bytes.fromhex(header["selection"]))
        assert "base" not in offer["set"], "nothing is held yet: every object is named"
        objects = {}
        for key, change in offer["set"]["delta"].items():
            kind, namespace, name = key.split("/", 2)
            stub = change["to"]
            objects[kind, namespace, name] = (stub.get("uid", ""), bytes.fromhex(stub["digest"]))
        assert set_root(objects).hex() == entry["root"], "the set has the root that the release gives"
        digest = sha256(offer["header"]["payload"].encode()).hex()
        return {"channel": entry["channel"], "seq": header["seq"], "header": digest, "root": entry["root"]}


# Links over gRPC.


def messages(protos):
    """The messages of the .proto files, by their full names."""
    out = Path(tempfile.mkdtemp(), "descriptors")
    files = ["muster/v1/muster.proto", "grpc/health/v1/health.proto"]
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{protos}", "--include_imports"]
    subprocess.run([*protoc, f"--descriptor_set_out={out}", *files], check=True)
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file:
        pool.Add(file)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


class Link:
    def __init__(self, channel, types, hostname, metadata, number):
        self.event, self.source, self.count = types("muster.v1.Event"), hostname, 0
        self.name = f"python-{os.getpid()}-{number}"
        subscribe = channel.stream_stream(
            "/muster.v1.EventStream/Subscribe", self.event.SerializeToString, self.event.FromString
        )
        self.queue = queue.Queue()
        self.frames = subscribe(iter(self.queue.get, None), metadata=metadata, timeout=60)

    def send(self, name, data):
        self.count += 1
        event = self.event()
        said = event.event
        said.id, said.source = f"{self.name}.{self.count}", self.source
        said.spec_version, said.type = "1.0", PREFIX + name
        said.binary_data = canonical(data)
        self.queue.put(event)

    def next(self, *wanted):
        """The next frame of one of these names, and its attributes; a go-away is an error."""
        for message in self.frames:
            event = message.event
            name = event.type.removeprefix(PREFIX)
            value = lambda attribute: getattr(attribute, attribute.WhichOneof("attr"))
            attributes = {key: value(attribute) for key, attribute in event.attributes.items()}
            assert name != "go-away" or name in wanted, event.binary_data
            if name in wanted:
                return name, attributes, event.binary_data
        raise AssertionError(f"the stream ended: {self.frames.code()} {self.frames.details()}")

    def hello(self, mode, versions, capabilities, have=None):
        head = {"incarnation": "n0123456789abcdef", "revision": 0}
        hello = {"versions": versions, "capabilities": capabilities, "role": "agent", "mode": mode}
        hello |= {"instance": f"python-{os.getpid()}", "head": head}
        self.send("hello", hello | ({"have": have} if have else {}))

    def end(self):
        self.send("go-away", {"code": "shutdown", "message": "the test is over"})
        self.queue.put(None)
        for _ in self.frames:
            pass


CHANGES = ("create", "spec-update", "delete")


def take(objects, attributes, content):
    """Puts an object that came into the set, when its content has its digest."""
    namespace, _, name = attributes["subject"].partition("/")
    digest = sha256(content)
    assert attributes["digest"] == digest.hex(), "the digest is over the content"
    objects[attributes["dataschema"], namespace, name] = (attributes["resourceid"], digest)


def subscribe(node, types, metadata, channel, mode, kind):
    """Takes everything over one link, and compares roots at its checkpoint."""
    version = types("muster.v1.VersionResponse")
    ask = channel.unary_unary(
        "/muster.v1.Version/Version", types("muster.v1.VersionRequest").SerializeToString, version.FromString
    )
    spoken = ask(types("muster.v1.VersionRequest")(), metadata=metadata, timeout=30)
    versions = [spoken.lowest, spoken.highest]
    assert "trie-resync" in spoken.capabilities, spoken.capabilities
    link, objects, last = Link(channel, types, node.hostname, metadata, 1), {}, 0
    link.hello(mode, versions, ["trie-resync"])
    _, _, theirs = link.next("hello")
    head = json.loads(theirs)["head"]
    while True:
        name, attributes, content = link.next(*CHANGES, "checkpoint")
        if name in CHANGES:
            assert int(attributes["seq"]) == last + 1, "events are numbered 1, 2, 3 on a link"
            last += 1
            take(objects, attributes, content)
            link.send("processed", {"seq": last})
        elif set_root(objects).hex() == json.loads(content)["root"]:
            break
    link.end()
    assert all(key[0] == kind for key in objects), objects.keys()
    return objects, head, versions


def resync(node, types, metadata, channel, mode, known):
    """Claims to be at the head with one object less, and finds what is missing by the hashes."""
    objects, cursor, versions = known
    missing = sorted(objects)[0]
    held = {key: value for key, value in objects.items() if key != missing}
    link = Link(channel, types, node.hostname, metadata, 2)
    link.hello(mode, versions, ["trie-resync"], have={"cursor": cursor, "root": set_root(held).hex()})
    _, _, checkpoint = link.next("checkpoint")
    assert json.loads(checkpoint)["root"] != set_root(held).hex(), "the sets differ"

    def response(what, request):
        link.send("resync-request", request)
        while True:
            name, attributes, content = link.next("resync-response", *CHANGES)
            if name == "resync-response":
                return json.loads(content)[what]
            take(held, attributes, content)

    snapshot = response("sections", "sections")
    for section, _ in snapshot["sections"]:
        paths = [[]]
        while paths:
            tops = response("tops", {"tops": {"section": section, "paths": paths[:256]}})["tops"]
            paths = paths[256:]
            for path, top in tops:
                if "branch" in top:
                    paths += [path + [n] for n, one in enumerate(top["branch"]) if int(one, 16)]
                else:
                    lacks = []
                    for leaf in top["bucket"]:
                        here = (section["kind"], section.get("namespace", ""), leaf["name"])
                        if held.get(here) != (leaf["uid"], bytes.fromhex(leaf["digest"])):
                            lacks.append("/".join(here))
                    if lacks:
                        assert response("objects", {"objects": lacks}) == len(lacks)
    link.send("resync-request", {"done": {"from": snapshot["cursor"]}})
    assert set_root(held) == set_root(objects), "the sets are equal again"
    link.end()


def refusal(node, types, metadata, channel):
    """A frame that cannot be read ends the call with a reason."""
    link = Link(channel, types, "somebody-else", metadata, 3)
    link.send("ping", {"number": 1, "head": 0})
    _, _, away = link.next("go-away")
    try:
        for _ in link.frames:
            pass
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
        trailers = dict(error.trailing_metadata())
        assert trailers["muster-code"] == json.loads(away)["code"] == "unreadable", trailers
        return
    raise AssertionError("the call ended well")


def reflect(channel):
    """A stock client of reflection finds the services and every file behind them."""
    database = ProtoReflectionDescriptorDatabase(channel)
    names = set(database.get_services())
    assert {"muster.v1.EventStream", "muster.v1.Version", "grpc.health.v1.Health"} <= names, names
    pool = descriptor_pool.DescriptorPool(database)
    subscribe = pool.FindServiceByName("muster.v1.EventStream").methods_by_name["Subscribe"]
    assert subscribe.input_type.full_name == "muster.v1.Event"
    event = subscribe.input_type.fields_by_name["event"].message_type
    assert event.full_name == "io.cloudevents.v1.CloudEvent", event.full_name


def healthy(types, channel):
    """Health says that all is served: once, and as the first word of a watch that goes on."""
    request, response = types("grpc.health.v1.HealthCheckRequest"), types("grpc.health.v1.HealthCheckResponse")
    codecs = (request.SerializeToString, response.FromString)
    assert channel.unary_unary("/grpc.health.v1.Health/Check", *codecs)(request(), timeout=30).status == 1
    watch = channel.unary_stream("/grpc.health.v1.Health/Watch", *codecs)(request(), timeout=30)
    assert next(watch).status == 1
    assert watch.is_active(), "a watch goes on"
    watch.cancel()


def main(protos, hostname, mode, kind, token):
    node = Node(hostname, token)
    print("enrolled as", node.id)
    quiet = {"incarnation": "i0123456789abcdef"}
    answer = node.call("POST", "/v1/agent/checkin?wait=0", quiet)
    print("checked in: next in", answer["nextCheckinSecs"])
    held = node.adopt(answer["offer"])
    assert "offer" not in node.call("POST", "/v1/agent/checkin", quiet | {"held": held}), "it is held now"
    print("adopted release", held["seq"], flush=True)
    # Objects are made for the node now; a line says that they are there.
    sys.stdin.readline()
    at = urlsplit(node.url)
    credentials = grpc.ssl_channel_credentials(node.ca.encode(), node.private, node.cert.encode())
    types, metadata = messages(protos), [("muster-protocol", "1")]
    with grpc.secure_channel(at.netloc, credentials) as channel:
        healthy(types, channel)
        print("healthy")
        reflect(channel)
        print("reflected")
        known = subscribe(node, types, metadata, channel, mode, kind)
        print("subscribed:", len(known[0]), "objects, roots equal")
        resync(node, types, metadata, channel, mode, known)
        print("resynced")
        refusal(node, types, metadata, channel)
        print("refused with a reason")


if __name__ == "__main__":
    main(*sys.argv[1:])
