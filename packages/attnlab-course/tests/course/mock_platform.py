"""An LTI 1.3 platform that runs here: it checks what a real one must, and fails at times.

It follows 1EdTech's Security Framework 1.0 (tokens for signed JWTs), Assignment and Grade Services
2.0 and Names and Role Provisioning Services 2.0: signature, audience, times and `jti` of the JWT,
scopes, media types, pages by `Link` headers, and scores whose timestamps grow.
"""

import datetime
import json
import re
import secrets
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

AGS = "https://purl.imsglobal.org/spec/lti-ags/scope/"
NRPS = "https://purl.imsglobal.org/spec/lti-nrps/scope/contextmembership.readonly"
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
JSON_FORM = "application/json"
LINE_ITEM = "application/vnd.ims.lis.v2.lineitem+json"
LINE_ITEMS = "application/vnd.ims.lis.v2.lineitemcontainer+json"
SCORE = "application/vnd.ims.lis.v1.score+json"
MEMBERS = "application/vnd.ims.lti-nrps.v2.membershipcontainer+json"
ACTIVITY = {"Initialized", "Started", "InProgress", "Submitted", "Completed"}
GRADING = {"FullyGraded", "Pending", "PendingManual", "Failed", "NotReady"}
PAGE = 2
"""How many members or columns a page has."""


class Refusal(Exception):
    """The answer to a request that is not as it must be."""

    def __init__(self, status, words):
        super().__init__(words)
        self.status = status


class MockPlatform:
    """The state of the platform, and its server.

    Args:
        key: the public key of the tool, with the `kid` under which it is registered.
    """

    def __init__(self, key, kid="key-1"):
        self.keys = {kid: key}
        self.members = []
        self.columns = {}
        self.scores = {}
        self.tokens = {}
        self.seen = set()
        self.allowed = {AGS + "lineitem", AGS + "lineitem.readonly", AGS + "score", NRPS}
        self.faults = {}  # of a method and path, the next answers: statuses, or "lost"
        self.asked = Counter()
        self.received = []  # every score that came, taken or not
        self.retry_after = None
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()
        return self

    def __exit__(self, *raised):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def settings(self, **more):
        """Return a platform.toml."""
        values = {
            "client_id": "tool-7",
            "token_url": f"{self.url}/token",
            "key": "tool.pem",
            "key_id": "key-1",
            "line_items": f"{self.url}/course/1/columns?role=tool",
            "assignment": "attention-1",
            "memberships": f"{self.url}/course/1/members",
            **more,
        }
        return "".join(f'{name} = "{value}"\n' for name, value in values.items() if value)

    def add_members(self, *members):
        """Add members; each is a dictionary without its user_id."""
        for member in members:
            number = len(self.members) + 1
            self.members.append({"user_id": f"u{number}", "roles": ["Learner"], **member})

    def taken(self):
        """Return the scores in the gradebook by column's label and user."""
        found = {}
        for (column, user), score in self.scores.items():
            found[self.columns[column]["label"], user] = score
        return found

    def answer(self, method, path, query, headers, body):
        """Return status, headers and body of the answer to a request."""
        if (method, path) == ("POST", "/token"):
            return 200, {}, JSON_FORM, self.give_token(headers, body)
        scopes = self.scopes_of(headers)
        if path == "/course/1/members" and method == "GET":
            need(scopes, NRPS)
            accept(headers, MEMBERS)
            page, links = self.page(self.members, path, query)
            content = {"id": self.url + path, "context": {"id": "1"}, "members": page}
            return 200, links, MEMBERS, content
        if path == "/course/1/columns":
            return self.answer_columns(method, path, query, headers, body, scopes)
        match = re.fullmatch(r"/course/1/columns/(\d+)/scores", path)
        if match and method == "POST":
            need(scopes, AGS + "score")
            if query.get("role") != "tool":
                raise Refusal(404, "the query of the column's address was lost")
            if headers["Content-Type"] != SCORE:
                raise Refusal(415, f"a score is {SCORE}")
            self.take_score(match[1], json.loads(body))
            return 204, {}, JSON_FORM, None
        raise Refusal(404, f"there is no {method} {path}")

    def answer_columns(self, method, path, query, headers, body, scopes):
        if method == "GET":
            need(scopes, AGS + "lineitem", AGS + "lineitem.readonly")
            accept(headers, LINE_ITEMS)
            wanted = query.get("resource_id")
            columns = [
                column
                for column in self.columns.values()
                if wanted is None or column.get("resourceId") == wanted
            ]
            page, links = self.page(columns, path, query)
            return 200, links, LINE_ITEMS, page
        need(scopes, AGS + "lineitem")
        if headers["Content-Type"] != LINE_ITEM:
            raise Refusal(415, f"a column is {LINE_ITEM}")
        return 201, {}, LINE_ITEM, self.add_column(json.loads(body))

    def add_column(self, column):
        """Add a column to the gradebook."""
        if not column.get("label") or not column.get("scoreMaximum", 0) > 0:
            raise Refusal(400, "a column needs a label and a scoreMaximum above 0")
        number = str(len(self.columns) + 1)
        address = f"{self.url}/course/1/columns/{number}?role=tool"
        self.columns[number] = {**column, "id": address}
        return self.columns[number]

    def give_token(self, headers, body):
        """Give a token for a JWT that is signed, for this address, of now, and new."""
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        if headers["Content-Type"] != "application/x-www-form-urlencoded":
            raise Refusal(415, "a form is expected")
        if form.get("grant_type") != "client_credentials":
            raise Refusal(400, "unsupported_grant_type")
        if form.get("client_assertion_type") != ASSERTION:
            raise Refusal(400, "invalid_request")
        signed = form["client_assertion"]
        try:
            key = self.keys[jwt.get_unverified_header(signed)["kid"]]
            claims = jwt.decode(
                signed,
                key,
                algorithms=["RS256"],
                audience=f"{self.url}/token",
                issuer="tool-7",
                subject="tool-7",
                options={"require": ["iss", "sub", "aud", "iat", "exp", "jti"]},
            )
        except (KeyError, jwt.PyJWTError) as error:
            raise Refusal(401, f"invalid_client: {type(error).__name__}") from None
        if claims["exp"] - claims["iat"] > 3600 or claims["jti"] in self.seen:
            raise Refusal(401, "invalid_client: it lasts too long, or was seen before")
        self.seen.add(claims["jti"])
        granted = self.allowed & {*form["scope"].split()}
        if not granted:
            raise Refusal(400, "invalid_scope")
        token = secrets.token_hex(8)
        self.tokens[token] = (granted, time.monotonic() + 3600)
        return {
            "access_token": token,
            "token_type": "Bearer",
            "expires_in": 3600,
            "scope": " ".join(sorted(granted)),
        }

    def scopes_of(self, headers):
        """Return the scopes of the token of a request."""
        kind, _, token = headers.get("Authorization", "").partition(" ")
        scopes, end = self.tokens.get(token, (set(), 0.0))
        if kind != "Bearer" or time.monotonic() > end:
            raise Refusal(401, "the token is missing or over")
        return scopes

    def page(self, entries, path, query):
        """Return a page of a list, and the header that names the next."""
        first = int(query.get("from", 0))
        links = {}
        if first + PAGE < len(entries):
            words = "&".join(f"{name}={value}" for name, value in query.items() if name != "from")
            following = f"{self.url}{path}?{words}&from={first + PAGE}"
            links = {"Link": f'<{following}>; rel="next", <{self.url}>; rel="differences"'}
        return entries[first : first + PAGE], links

    def take_score(self, column, score):
        """Take a score that has all that a score must have, and is newer than the one before."""
        self.received.append(score)
        if column not in self.columns:
            raise Refusal(404, "there is no such column")
        if score["userId"] not in {member["user_id"] for member in self.members}:
            raise Refusal(404, f"there is no user {score['userId']} in this course")
        if score["activityProgress"] not in ACTIVITY or score["gradingProgress"] not in GRADING:
            raise Refusal(400, "the progress is not one of the specification's")
        if "scoreGiven" in score and not score.get("scoreMaximum", 0) > 0:
            raise Refusal(400, "a score needs its maximum")
        if score.get("scoreGiven", 0) < 0:
            raise Refusal(400, "a score is not below 0")
        if not re.search(r"T.*\.\d+(Z|[+-]\d\d:\d\d)$", score["timestamp"]):
            raise Refusal(400, "a timestamp has parts of a second and its offset")
        before = self.scores.get((column, score["userId"]))
        if before and when(score) <= when(before):
            raise Refusal(409, "a newer score, or one of the same time, is here already")
        self.scores[column, score["userId"]] = score


def when(score):
    return datetime.datetime.fromisoformat(score["timestamp"])


def need(scopes, *allowed):
    if not scopes & {*allowed}:
        raise Refusal(403, f"the token does not allow {allowed[0]}")


def accept(headers, kind):
    if headers.get("Accept") != kind:
        raise Refusal(406, f"only {kind} is given")


def _handler_of(platform):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or the body waits for the head to be acknowledged

        def respond(self):
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            key = (self.command, parts.path)
            platform.asked[key] += 1
            fault = platform.faults.get(key, []).pop(0) if platform.faults.get(key) else None
            if isinstance(fault, int):
                self.write(fault, {}, JSON_FORM, {"error": "a fault of this test"})
                return
            try:
                answer = platform.answer(self.command, parts.path, query, self.headers, body)
            except Refusal as error:
                answer = (error.status, {}, JSON_FORM, {"error": str(error)})
            if fault == "lost":  # it was done, and no answer comes
                self.close_connection = True
                return
            self.write(*answer)

        do_GET = do_POST = respond  # noqa: N815  as http.server names them

        def write(self, status, headers, kind, content):
            data = b"" if content is None else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {
                "Content-Type": kind,
                "Content-Length": len(data),
                **headers,
            }.items():
                self.send_header(name, str(value))
            if status in (429, 503) and platform.retry_after is not None:
                self.send_header("Retry-After", platform.retry_after)
            if 300 <= status < 400:
                self.send_header("Location", platform.url)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    return Handler


def make_key():
    """Return a private RSA key as PEM, and its public half."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return pem, key.public_key()
