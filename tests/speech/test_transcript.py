from __future__ import annotations

from trinity.speech.transcript import Segment, srt, vtt


def segment(start: float, end: float, text: str) -> Segment:
    return Segment(start, end, text, (), -0.1, 0.0, 0.0)


SEGMENTS = [segment(0, 1.5, "Hello\n\nthere"), segment(3661.0004, 36000.9999, "a <b> --> c & d")]


def test_srt() -> None:
    assert srt(SEGMENTS) == (
        "1\n00:00:00,000 --> 00:00:01,500\nHello there\n\n"
        "2\n01:01:01,000 --> 10:00:01,000\na <b> -> c & d\n"
    )


def test_vtt() -> None:
    assert vtt(SEGMENTS) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello there\n\n"
        "01:01:01.000 --> 10:00:01.000\na &lt;b&gt; -&gt; c &amp; d\n"
    )


def test_nothing_was_said() -> None:
    assert srt([]) == ""
    assert vtt([]) == "WEBVTT\n"
