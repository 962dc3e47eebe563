"""The recorded demonstration: a real run, drawn as recorded, without scripts and names of this machine."""

from __future__ import annotations

import re
import sys

from tools.site import recording


def test_the_picture_is_as_the_recording_is_drawn() -> None:
    text = recording.CAST.read_text("utf-8")
    events = recording.events_of(text)
    assert recording.cast(events) == text
    assert recording.PICTURE.read_text("utf-8") == recording.svg(events)


def test_the_recording_ends_well_and_shows_each_refusal() -> None:
    told = "".join(text for _, text in recording.events_of(recording.CAST.read_text("utf-8")))
    assert "Every answer was the expected one." in told
    for refusal in (
        "LocationNotAllowed",
        "MetadataUnsealed",
        "MetadataTampered",
        "NotAuthorized",
        "DecryptionRefused",
        "KeyNotUsable",
    ):
        assert refusal in told


def test_the_picture_is_small_and_needs_no_script_and_no_other_host() -> None:
    picture = recording.PICTURE.read_text("utf-8")
    assert len(picture) < 300_000
    assert "prefers-reduced-motion" in picture
    assert re.search(r'style="fill: #\w{6}">LocationNotAllowed<', picture)
    links = set(re.findall(r"https?://[^\s\"<]+", picture)) - {"http://www.w3.org/2000/svg"}
    assert "<script" not in picture and "href" not in picture and not links


def test_a_recording_names_no_directory_of_the_machine() -> None:
    for file in (recording.CAST, recording.PICTURE):
        found = set(
            re.findall(r"/(?:home|root|work|Users|var)/\S*|lakewarden-demo-\w+", file.read_text("utf-8"))
        )
        assert not found


def test_a_run_is_recorded_without_its_progress_and_its_random_directory() -> None:
    said = (
        "import sys, time; out = sys.stdout; "
        "out.write('\\x1b[1mTitle\\x1b[0m  \\nIn file:///tmp/lakewarden-demo-ab12cd34/lake.\\n\\x1b[?25l'); "
        "out.write('\\x1b[32m\u280b\\x1b[0m    working'); out.flush(); time.sleep(0.1); "
        "out.write('\\r\\x1b[2K\\x1b[32m\u2819\\x1b[0m    working\\n\\x1b[?25h\\r\\x1b[1A\\x1b[2Kdone\\n')"
    )
    events = recording.told(recording.record([sys.executable, "-c", said]))
    lines = "".join(text for _, text in events).split("\r\n")
    assert lines == ["\x1b[1mTitle\x1b[0m", "In file:///tmp/lakewarden-demo/lake.", "done", ""]
    assert '<tspan class="b">Title</tspan>' in recording.svg(events)
