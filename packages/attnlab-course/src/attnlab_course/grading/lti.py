"""The services of an LTI 1.3 platform that a grader needs: token, column, members, scores.

Sources, all of 1EdTech: Security Framework 1.0 (a token for a signed JWT, after RFC 7523), LTI
Assignment and Grade Services 2.0, LTI Names and Role Provisioning Services 2.0. A request is
repeated where the platform is busy or does not answer; no redirect is followed, since it would turn
a score that is posted into a page that is read.
"""

import email.utils
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urljoin, urlsplit, urlunsplit

import jwt
import requests

from attnlab.core.store import refusing_damage
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab_course.grading.course_file import TEXT, read_settings
from attnlab_course.grading.file_names import inert

T = TypeVar("T")
Body = dict[str, Any]

_SCOPES = "https://purl.imsglobal.org/spec/lti-ags/scope/"
LINE_ITEM_SCOPE = f"{_SCOPES}lineitem"
SCORE_SCOPE = f"{_SCOPES}score"
MEMBERS_SCOPE = "https://purl.imsglobal.org/spec/lti-nrps/scope/contextmembership.readonly"
LINE_ITEM = "application/vnd.ims.lis.v2.lineitem+json"
LINE_ITEMS = "application/vnd.ims.lis.v2.lineitemcontainer+json"
SCORE = "application/vnd.ims.lis.v1.score+json"
MEMBERS = "application/vnd.ims.lti-nrps.v2.membershipcontainer+json"

_BUSY = (429, 500, 502, 503, 504)
_ATTEMPTS = 6
_LONGEST_WAIT = 120.0
_TIMEOUT = (10, 60)  # seconds to connect, and to answer
_NEEDED = (  # of a platform.toml: one of each
    ("client_id",),
    ("token_url",),
    ("key",),
    ("key_id",),
    ("line_items assignment", "line_item"),
    ("memberships", "users"),
)
_ADDRESSES = ("token_url", "line_items", "line_item", "memberships")
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Platform:
    """How a platform knows this tool, and where one course's gradebook is: a platform.toml.

    Args:
        client_id: the tool's, which the platform gave it.
        token_url: where the platform gives out tokens.
        key: the file of the tool's private RSA key, whose public half the platform has.
        key_id: that key's `kid`.
        line_items: the address of the course's gradebook columns.
        assignment: the tool's own name for its column there; it never changes.
        title: of a column that is created; by default the assignment.
        line_item: the column's address, where the platform has made it; nothing is searched then.
        users: a table with the columns student and user_id, which comes before the members.
        memberships: the address of the course's members.
        audience: of the signed request, where the platform wants another than token_url.
    """

    client_id: str
    token_url: str
    key: str
    key_id: str
    line_items: str = ""
    assignment: str = ""
    title: str = ""
    line_item: str = ""
    users: str = ""
    memberships: str = ""
    audience: str = ""


def read_platform(path: Path) -> Platform:
    """Read a platform.toml; the files that it names lie beside it.

    Raises:
        WrongUsage: a key that is unknown or missing, a value that is no text, an address that is
            not encrypted.
        CouldNotRun: the file cannot be read.
    """
    settings = read_settings(path, {setting.name: TEXT for setting in fields(Platform)})
    for name in settings.keys() & {*_ADDRESSES}:
        _check_encrypted(settings[name], f"{path}: {name}")
    for choices in _NEEDED:
        if not any(settings.keys() >= {*names.split()} for names in choices):
            words = " or ".join(names.replace(" ", " with ") for names in choices)
            raise WrongUsage(f"{path} needs {words}.")
    for name in ("key", "users"):
        if name in settings:
            settings[name] = str(path.parent / settings[name])
    return Platform(**settings)


def _check_encrypted(url: str, what: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOCAL):
        raise WrongUsage(f"{what} must be an address that begins with https://; got {url!r}.")


class PlatformRefused(CouldNotRun):
    """The platform has answered, and does not do what was asked."""


class _Busy(Exception):
    """The platform did not answer, or asks to come back."""

    def __init__(self, words: str, seconds: float | None = None) -> None:
        super().__init__(words)
        self.seconds = seconds


@dataclass
class Services:
    """A platform's services for one course.

    platform: how it knows this tool.
    """

    platform: Platform
    _session: requests.Session = field(default_factory=requests.Session)
    _token: str = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._session.close()

    def members(self) -> list[Mapping[str, Any]]:
        """Return the active members of the course, from all pages.

        Raises:
            CouldNotRun: the platform does not give them.
        """
        members: list[Mapping[str, Any]] = []
        for page in self._pages(self.platform.memberships, MEMBERS):
            with refusing_damage("the platform's list of members"):
                members += [member for member in page["members"] if member["user_id"]]
        return [member for member in members if member.get("status", "Active") == "Active"]

    def column(self, maximum: float, *, create: bool) -> str:
        """Return the address of the assignment's column, which is created where there is none.

        Args:
            maximum: how many points the column has, if it is created.
            create: whether it may be; without it, "" says that there is none.

        Raises:
            WrongUsage: there are several.
            CouldNotRun: the platform does not give or create one.
        """
        platform = self.platform
        if platform.line_item:
            return platform.line_item
        body = {
            "label": platform.title or platform.assignment,
            "scoreMaximum": maximum,
            "resourceId": platform.assignment,
        }

        def find_or_create() -> str:  # it may have been created though no answer came
            column = self._find_column()
            if column or not create:
                return column
            answer = self._ask("POST", platform.line_items, LINE_ITEM, LINE_ITEM, body)
            return self._address_of(_json(answer))

        return self._repeat(find_or_create)

    def post_score(self, column: str, make_score: Callable[[], Body]) -> None:
        """Post a score.

        Args:
            column: its address.
            make_score: makes the score anew for each attempt, since no two may have one timestamp.

        Raises:
            PlatformRefused: the platform does not take it.
            CouldNotRun: the platform does not answer.
        """
        parts = urlsplit(column)
        url = urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/scores"))
        self._repeat(lambda: self._ask("POST", url, "*/*", SCORE, make_score()))

    def _find_column(self) -> str:
        wanted, columns = self.platform.assignment, []
        for page in self._pages(self.platform.line_items, LINE_ITEMS, {"resource_id": wanted}):
            with refusing_damage("the platform's list of columns"):
                columns += [item for item in page if item.get("resourceId") == wanted]
        if len(columns) > 1:
            raise WrongUsage(
                f"the platform has {len(columns)} columns for {wanted!r}; name the right one in "
                f"platform.toml: line_item = {columns[0].get('id')!r}"
            )
        return self._address_of(columns[0]) if columns else ""

    def _address_of(self, item: Mapping[str, Any]) -> str:
        url = item.get("id")
        if not isinstance(url, str):
            raise PlatformRefused("the platform gave a column without its address (id).")
        self._check_place(url)
        return url

    def _pages(self, url: str, accept: str, query: Body | None = None) -> Iterator[Any]:
        """Yield the pages of a list; each names the next in its header."""
        seen = set()
        while url:
            if url in seen:
                raise PlatformRefused(f"the pages of {url} go in a circle.")
            seen.add(url)
            self._check_place(url)
            answer = self._repeat(lambda: self._ask("GET", url, accept, query=query))  # noqa: B023
            yield _json(answer)
            following = answer.links.get("next", {}).get("url")
            url, query = urljoin(url, following) if following else "", None

    def _check_place(self, url: str) -> None:
        """Refuse an address elsewhere: a token is for its own platform."""
        addresses = [self.platform.line_items, self.platform.memberships, self.platform.line_item]
        if urlsplit(url)[:2] not in [urlsplit(address)[:2] for address in addresses if address]:
            raise PlatformRefused(f"the platform names an address on another server: {inert(url)}.")

    def _repeat(self, attempt: Callable[[], T]) -> T:
        """Return what an attempt gives, repeated with longer and longer waits."""
        for number in range(_ATTEMPTS):
            try:
                return attempt()
            except _Busy as busy:
                seconds = busy.seconds if busy.seconds is not None else 2.0**number
                if number + 1 == _ATTEMPTS or seconds > _LONGEST_WAIT:
                    raise CouldNotRun(
                        f"the platform is not ready: {busy}. The same command goes on later."
                    ) from None
            time.sleep(seconds)
        raise AssertionError("the last attempt returns or raises")

    def _ask(
        self,
        method: str,
        url: str,
        accept: str,
        content: str = "",
        body: Body | None = None,
        query: Body | None = None,
    ) -> requests.Response:
        """Send a request with a token, and once more with a new one where the old one is over."""
        for is_last in (False, True):
            self._token = self._token or self._new_token()
            headers = {"Accept": accept, "Authorization": f"Bearer {self._token}"}
            if body is not None:
                headers["Content-Type"] = content
            answer = self._send(method, url, headers=headers, json=body, params=query)
            if answer.status_code != 401 or is_last:
                break
            self._token = ""
        return _demand(answer)

    def _new_token(self) -> str:
        platform, now = self.platform, int(time.time())
        claims = {
            "iss": platform.client_id,
            "sub": platform.client_id,
            "aud": platform.audience or platform.token_url,
            "iat": now - 5,  # clocks differ
            "exp": now + 300,
            "jti": uuid.uuid4().hex,
        }
        scopes = [SCORE_SCOPE]
        if not platform.line_item:
            scopes.append(LINE_ITEM_SCOPE)
        if platform.memberships:
            scopes.append(MEMBERS_SCOPE)
        try:
            key = Path(platform.key).read_text(encoding="ascii")
            signed = jwt.encode(claims, key, "RS256", {"kid": platform.key_id})
        except (OSError, ValueError, jwt.PyJWTError) as error:
            raise CouldNotRun(
                f"could not sign with {platform.key}, which must be a private RSA key (PEM): "
                f"{inert(str(error))}."
            ) from None
        form = {
            "grant_type": "client_credentials",
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            "client_assertion": signed,
            "scope": " ".join(scopes),
        }
        headers = {"Accept": "application/json"}
        answer = _json(_demand(self._send("POST", platform.token_url, headers=headers, data=form)))
        with refusing_damage("the platform's answer with a token"):
            token = str(answer["access_token"])
            missing = {*scopes} - {*answer.get("scope", form["scope"]).split()}
        if missing:
            raise PlatformRefused(
                f"the platform does not allow {', '.join(sorted(missing))}; allow it where the "
                "tool is registered."
            )
        return token

    def _send(self, method: str, url: str, **options: Any) -> requests.Response:
        try:
            answer = self._session.request(
                method, url, timeout=_TIMEOUT, allow_redirects=False, **options
            )
        except requests.RequestException as error:
            raise _Busy(f"{_place(url)} does not answer ({type(error).__name__})") from None
        if answer.status_code in _BUSY:
            words = f"{_place(url)} answers {answer.status_code} {answer.reason}"
            raise _Busy(words, _retry_after(answer.headers.get("Retry-After", "")))
        return answer


def _place(url: str) -> str:
    return urlunsplit((*urlsplit(url)[:3], "", ""))


def _retry_after(text: str) -> float | None:
    """Return the seconds that a platform asks to wait, as a number or a date."""
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def _demand(answer: requests.Response) -> requests.Response:
    """Return an answer of success.

    Raises:
        PlatformRefused: it is another, with what the platform says.
    """
    if answer.ok and answer.status_code < 300:
        return answer
    words = inert(answer.text[:1000]) or answer.reason
    raise PlatformRefused(f"{_place(answer.url)} answers {answer.status_code}: {words}")


def _json(answer: requests.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        raise PlatformRefused(
            f"{_place(answer.url)} answers with something that is no JSON."
        ) from None
