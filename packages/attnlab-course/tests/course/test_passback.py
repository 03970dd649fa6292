"""`attnlab grade-send` beside a platform that checks every request, and fails at times."""

import json
import re

import pytest

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab_course.grade_command import grade
from attnlab_course.grade_send_command import grade_send
from attnlab_course.grading.sheets import read_table

from .classroom import GOOD, MULTIPLIES, RAISES, SQUARE, exercises_in, grade_here, handed_in

pytest.importorskip("jwt", reason="attnlab-course[lti] is not installed")
requests = pytest.importorskip("requests", reason="attnlab-course[lti] is not installed")

from attnlab_course.grading import lti, passback  # noqa: E402

from .mock_platform import MockPlatform, make_key  # noqa: E402

COLUMN = "/course/1/columns/1/scores"
POST_SCORE = ("POST", COLUMN)
COLUMNS = "/course/1/columns"


@pytest.fixture(scope="module")
def key():
    return make_key()


@pytest.fixture
def platform(key):
    with MockPlatform(key[1]) as made:
        names = ("Alice", "Bob", "Dora", "Emil", "Eve")
        made.add_members(*({"email": f"{name.lower()}@school.example"} for name in names))
        yield made


@pytest.fixture
def waits(monkeypatch):
    """The seconds that would have been waited."""
    seconds = []
    monkeypatch.setattr(lti.time, "sleep", seconds.append)
    return seconds


@pytest.fixture
def room(tmp_path, platform, key, monkeypatch):
    """A graded class: one of each kind, an absent student, and one that the platform lacks."""
    grade_here(monkeypatch)
    exercises_in(tmp_path / "own")
    (tmp_path / "submissions").mkdir()
    for student, source in {
        "alice": GOOD,
        "bob": SQUARE,
        "dora": RAISES,
        "eve": MULTIPLIES,
    }.items():
        hand_in(tmp_path, student, source)
    (tmp_path / "submissions" / "gil.zip").write_text("no zip")
    students = ["alice", "bob", "dora", "emil", "eve", "gil"]
    rows = [f"{student},{student}@school.example" for student in students]
    (tmp_path / "students.csv").write_text("\n".join(["student,email", *rows]))
    (tmp_path / "course.toml").write_text(
        'folder = "own"\nexercises = ["double"]\nstudents = "students.csv"\n'
    )
    (tmp_path / "tool.pem").write_bytes(key[0])
    (tmp_path / "platform.toml").write_text(platform.settings())
    grade_room(tmp_path)
    return tmp_path


def hand_in(room, student, source):
    (room / "submissions" / f"{student}.zip").write_bytes(handed_in({"double.py": source}))


def grade_room(room):
    grade(room / "submissions", out=room / "grades", course=room / "course.toml", quiet=True)


def send(room, capsys, **options):
    """Send, and return the exit status and what became of each score."""
    capsys.readouterr()
    file = room / "platform.toml"
    status = grade_send(room / "grades", platform=file, as_json=True, **options)
    return status, json.loads(capsys.readouterr().out)


def counts(told):
    parts = [told[name] for name in ("sent", "before", "refused", "unknown")]
    assert sum(parts) == told["given"] == len(told["outcomes"])
    return parts


def edit_settings(room, **more):
    (room / "platform.toml").write_text(more.pop("platform").settings(**more))


def test_every_score_is_in_the_gradebook_or_is_told_to_be_missing(room, platform, capsys):
    status, told = send(room, capsys)
    assert status == 1
    assert counts(told) == [5, 0, 0, 1]
    assert told["outcomes"]["gil"] == [
        "unknown",
        "no user of the platform has this email, id or name",
    ]
    scores = {user: score for (_, user), score in platform.taken().items()}
    points = [scores[f"u{number}"].get("scoreGiven") for number in range(1, 6)]
    assert points == [4, 1, 0, 0, None]  # the last waits for a review
    assert {score.get("scoreMaximum") for score in scores.values()} == {4, None}
    progress = {user: score["activityProgress"] for user, score in scores.items()}
    assert progress == dict.fromkeys(("u1", "u2", "u3", "u5"), "Completed") | {"u4": "Initialized"}
    assert {
        user for user, score in scores.items() if score["gradingProgress"] != "FullyGraded"
    } == {"u5"}
    assert scores["u5"]["gradingProgress"] == "PendingManual"
    assert "The number is squared" in scores["u2"]["comment"]
    assert "secret" not in scores["u3"]["comment"]
    assert [(c["label"], c["scoreMaximum"]) for c in platform.columns.values()] == [
        ("attention-1", 4)
    ]


def test_a_broken_zip_waits_and_who_is_not_on_the_list_is_refused(room, platform, capsys):
    platform.add_members({"email": "gil@school.example"})
    hand_in(room, "zed", GOOD)
    grade_room(room)
    told = send(room, capsys)[1]
    assert counts(told) == [6, 0, 1, 0]
    assert told["outcomes"]["zed"] == ["refused", "not on the list of students"]
    score = platform.taken()["attention-1", "u6"]
    assert score["gradingProgress"] == "PendingManual"
    assert "scoreGiven" not in score
    for table, column in (("moodle.csv", "grade"), ("canvas.csv", "grades")):
        rows = read_table(room / "grades" / table)
        empty = [row.get("full name") or row["student"] for row in rows if not row[column]]
        assert empty == ["eve", "gil"]


def test_again_only_what_has_changed_is_sent_and_later_than_before(room, platform, capsys):
    send(room, capsys)
    assert counts(send(room, capsys)[1]) == [0, 5, 0, 1]
    record = room / "grades" / "sent.jsonl"
    record.write_text(record.read_text().replace('"time": "2', '"time": "3'))  # a clock set back
    hand_in(room, "bob", GOOD)
    grade_room(room)
    assert counts(send(room, capsys)[1]) == [1, 4, 0, 1]
    assert platform.taken()["attention-1", "u2"]["scoreGiven"] == 4
    assert platform.taken()["attention-1", "u2"]["timestamp"] > "3"
    assert platform.asked[POST_SCORE] == 6
    assert len(platform.columns) == 1


def test_an_interrupted_sending_goes_on_and_a_cut_line_is_sent_again(room, platform, capsys, waits):
    platform.faults[POST_SCORE] = [None, None, *[503] * 18]
    with pytest.raises(CouldNotRun, match=r"not ready: .* answers 503 .* goes on later"):
        send(room, capsys)
    assert len(platform.scores) == 2
    record = room / "grades" / "sent.jsonl"
    record.write_text(record.read_text()[:-20])
    assert counts(send(room, capsys)[1]) == [4, 1, 0, 1]
    assert len(platform.scores) == 5
    assert len(record.read_text().splitlines()) == 5


def test_a_busy_platform_is_asked_again_after_the_time_that_it_names(room, platform, capsys, waits):
    platform.retry_after = "7"
    platform.faults = {
        ("POST", "/token"): [503],
        ("GET", "/course/1/members"): [429],
        ("GET", COLUMNS): [500],
        POST_SCORE: [502, 429],
    }
    assert counts(send(room, capsys)[1]) == [5, 0, 0, 1]
    assert waits == [7.0, 7.0, 1.0, 1.0, 7.0]
    assert not any(platform.faults.values())
    platform.retry_after = "Wed, 21 Oct 2099 07:28:00 GMT"
    platform.faults = {("POST", "/token"): [503]}
    with pytest.raises(CouldNotRun, match="goes on later"):
        send(room, capsys)


def test_what_was_done_though_no_answer_came_is_not_done_twice(room, platform, capsys, waits):
    platform.faults = {
        ("POST", "/token"): ["lost"],
        ("POST", COLUMNS): ["lost"],
        POST_SCORE: ["lost", None, "lost"],
    }
    assert counts(send(room, capsys)[1]) == [5, 0, 0, 1]
    assert len(platform.columns) == 1
    assert len(platform.scores) == 5
    assert len(waits) == 4


def test_a_token_that_is_over_is_replaced(room, platform, capsys):
    platform.faults = {POST_SCORE: [None, 401]}
    assert counts(send(room, capsys)[1]) == [5, 0, 0, 1]
    assert platform.asked["POST", "/token"] == 2


def test_a_score_that_the_platform_refuses_is_told_and_the_others_are_sent(room, platform, capsys):
    (room / "users.csv").write_text("student,user_id\nbob,u99\ngil,u3\n")
    edit_settings(room, platform=platform, users="users.csv")
    status, told = send(room, capsys)
    assert status == 1
    assert counts(told) == [3, 0, 1, 2]
    assert "there is no user u99 in this course" in told["outcomes"]["bob"][1]
    for student in ("gil", "dora"):  # one user for two students
        assert told["outcomes"][student] == ["unknown", "user u3 is another student's, too"]
    assert ("attention-1", "u3") not in platform.taken()


def test_one_score_that_always_fails_does_not_keep_the_others(room, platform, capsys, waits):
    platform.faults = {POST_SCORE: [None, *[500] * 6]}
    assert counts(send(room, capsys)[1]) == [4, 0, 1, 1]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0]


def test_a_redirect_is_no_success(room, platform, capsys, monkeypatch):
    """The planted fault follows it, and loses a score unnoticed."""
    platform.faults = {POST_SCORE: [302]}
    told = send(room, capsys)[1]
    assert counts(told) == [4, 0, 1, 1]
    assert "answers 302" in told["outcomes"]["alice"][1]
    sent = requests.Session.request

    def follow(self, method, url, **options):
        answer = sent(self, method, url, **options)
        if answer.status_code == 302:
            answer.status_code = 200  # as of the page that the redirect leads to
        return answer

    monkeypatch.setattr(requests.Session, "request", follow)
    platform.faults = {POST_SCORE: [302]}
    assert send(room, capsys)[1]["sent"] == 1
    assert len(platform.scores) == 4


def test_members_of_one_name_are_not_guessed_and_inactive_ones_do_not_count(room, platform, capsys):
    platform.members[0].update(email="bob@school.example")
    platform.members[2].update(status="Inactive")
    told = send(room, capsys)[1]
    assert counts(told) == [2, 0, 0, 4]
    assert told["outcomes"]["bob"] == ["unknown", "2 members share the email, id or name"]


def test_the_column_that_the_platform_made_is_used(room, platform, capsys):
    address = platform.add_column({"label": "Its own", "scoreMaximum": 100})["id"]
    edit_settings(room, platform=platform, line_item=address, line_items="", assignment="")
    assert counts(send(room, capsys)[1]) == [5, 0, 0, 1]
    assert platform.taken()["Its own", "u1"]["scoreMaximum"] == 4
    assert platform.asked["GET", COLUMNS] == 0


def test_of_two_columns_for_the_assignment_none_is_chosen(room, platform, capsys):
    for _ in range(2):
        platform.add_column({"label": "A", "scoreMaximum": 4, "resourceId": "attention-1"})
    with pytest.raises(WrongUsage, match="2 columns for 'attention-1'; name the right one"):
        send(room, capsys)


NO_SCORES = {lti.LINE_ITEM_SCOPE, lti.MEMBERS_SCOPE}
PROGRESS = passback._PROGRESS
TIME = passback.datetime.datetime.fromisoformat("2027-01-01T00:00:00.000+00:00")


def one_time(sent, key):
    sent.times[key] = TIME
    return TIME.isoformat(timespec="milliseconds")


@pytest.mark.parametrize(
    ("words", "place", "value"),
    [
        ("invalid_client: InvalidSignatureError", "tool.pem", make_key),
        ("invalid_client: KeyError", "key_id", "key-2"),
        ("invalid_client: InvalidAudienceError", "audience", "https://another.example"),
        ("invalid_client: ExpiredSignatureError", "lti.time.time", lambda: 1e9),
        ("was seen before", "lti.uuid.uuid4", lambda: lti.uuid.UUID(int=1)),
        ("not allow .*scope/score; allow it where", "platform.allowed", NO_SCORES),
        ("answers 415: .*a score is application/vnd", "lti.SCORE", "application/json"),
        ("answers 415: .*a column is application/vnd", "lti.LINE_ITEM", "application/json"),
        ("answers 406", "lti.MEMBERS", "*/*"),
        ("the query of the column's", "lti.urlunsplit", lambda parts: "{}://{}{}".format(*parts)),
        ("progress is not one of", "passback._PROGRESS", {**PROGRESS, "graded": ("", "")}),
        ("or one of the same time, is here already", "passback.SentScores.next_time", one_time),
    ],
)
def test_the_platform_refuses_a_faulty_tool_and_its_words_are_told(
    room, platform, capsys, monkeypatch, waits, words, place, value
):
    owner, _, name = place.rpartition(".")
    if place == "tool.pem":
        (room / place).write_bytes(value()[0])
    elif not owner:
        edit_settings(room, platform=platform, **{name: value})
    elif owner == "platform":
        setattr(platform, name, value)
    else:
        monkeypatch.setattr(f"attnlab_course.grading.{place}", value)
    platform.faults = {("POST", "/token"): ["lost"], POST_SCORE: ["lost"]}
    try:
        outcomes = send(room, capsys)[1]["outcomes"].values()
        refused = [why for outcome, why in outcomes if outcome == "refused"]
    except CouldNotRun as error:
        refused = [str(error)]
    assert re.search(words, "\n".join(refused))


def test_a_page_elsewhere_is_not_asked_with_our_token(room, platform, capsys, monkeypatch):
    honest = platform.page

    def page(entries, path, query):
        found, links = honest(entries, path, query)
        return found, {"Link": '<https://elsewhere.example/x>; rel="next"'} if links else links

    monkeypatch.setattr(platform, "page", page)
    with pytest.raises(CouldNotRun, match=r"on another server: https://elsewhere\.example/x"):
        send(room, capsys)


def test_pages_in_a_circle_end(room, platform, capsys, monkeypatch):
    here = f"{platform.url}/course/1/members"
    monkeypatch.setattr(platform, "page", lambda *_: ([], {"Link": f'<{here}>; rel="next"'}))
    with pytest.raises(CouldNotRun, match="go in a circle"):
        send(room, capsys)


def test_without_the_next_page_members_would_be_missed(room, platform, capsys, monkeypatch):
    monkeypatch.setattr(requests.Response, "links", {})
    assert counts(send(room, capsys)[1]) == [2, 0, 0, 4]


WRONG_SETTINGS = {
    ("token_url", "http://school.example/token"): "must be an address that begins with https",
    ("line_items", ""): "needs line_items with assignment or line_item",
    ("memberships", ""): "needs memberships or users",
    ("client", "x"): "there is no 'client'; did you mean 'client_id'",
    ("key_id", ""): "needs key_id",
}


def test_a_platform_file_that_makes_no_sense_is_refused(room, platform, capsys):
    for (name, value), words in WRONG_SETTINGS.items():
        edit_settings(room, platform=platform, **{name: value})
        with pytest.raises(WrongUsage, match=words):
            send(room, capsys)


def test_a_key_that_is_none_and_a_folder_without_grades_are_refused(room, platform, capsys):
    (room / "tool.pem").write_text("no key")
    with pytest.raises(CouldNotRun, match="must be a private RSA key"):
        send(room, capsys)
    with pytest.raises(CouldNotRun, match="holds no grades"):
        grade_send(room, platform=room / "platform.toml")


def test_results_of_grade_one_are_sent_and_failures_among_them_are_told(room, platform, capsys):
    results = json.loads((room / "grades" / "grades.json").read_text())["students"]
    folder = room / "results"
    folder.mkdir()
    for name, result in [*enumerate(results), ("x", {"state": "failed", "error": "why"})]:
        content = {"format": "attnlab result 1", "submission": f"{name}.zip", **result}
        (folder / f"{name}.json").write_text(json.dumps(content))
    file = room / "platform.toml"
    capsys.readouterr()
    assert grade_send(folder, platform=file, as_json=True) == 1
    told = json.loads(capsys.readouterr().out)
    assert counts(told) == [5, 0, 1, 1]
    assert told["outcomes"]["x.zip"] == ["refused", "it could not be graded: why"]
    (folder / "y.json").write_text((folder / "0.json").read_text())
    with pytest.raises(WrongUsage, match="two results of alice; keep one"):
        grade_send(folder, platform=file)
    (folder / "y.json").write_text('{"format": "another"}')
    with pytest.raises(CouldNotRun, match=r"y\.json is damaged: it is not of the form"):
        grade_send(folder, platform=file)
    other = {**content, **results[0], "student": "z", "of": 9}
    (folder / "y.json").write_text(json.dumps(other))
    with pytest.raises(WrongUsage, match=r"are out of 4\.0, 9 points"):
        grade_send(folder, platform=file)
