"""The page: sound HTML, nothing from outside, nobody's text taken for markup, words for pictures."""

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from dbull.errors import SettingsError
from dbull.ledger import Event
from dbull.report import render_report, write_report
from dbull.report.charts import hue
from dbull.report.data import ArrivalPoint, Lane

VOID = {"meta", "img", "input", "br", "hr", "link"}
SELF_CLOSED = {"circle", "rect", "line", "path", "polyline", "image"}
OUTSIDE = re.compile(r"https?:|//[a-z]|url\(|@import|<link|<iframe|srcset", re.IGNORECASE)


class Page(HTMLParser):
    """Every element with its attributes; refuses tags that do not match."""

    def __init__(self, html):
        super().__init__()
        self.open, self.elements, self.text = [], [], []
        self.feed(html)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in SELF_CLOSED, f"<{tag}/> is no element that closes itself"
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]


@pytest.fixture(scope="module", params=["data", "image_data"])
def page(request):
    return Page(render_report(request.getfixturevalue(request.param)))


def test_ids_are_unique_and_links_lead_somewhere(page):
    ids = Counter(attrs["id"] for _, attrs in page.elements if "id" in attrs)
    assert max(ids.values()) == 1
    links = [attrs["href"] for attrs in page.all("a")]
    assert links
    for link in links:
        assert link.startswith("#"), link
        assert link[1:] in ids, link
    for _, attrs in page.elements:
        if "aria-labelledby" in attrs:
            assert attrs["aria-labelledby"] in ids


def test_pictures_have_words(page):
    for attrs in page.all("img"):
        assert attrs["alt"].strip()
        assert attrs["src"].startswith("data:image/png;base64,")
    for attrs in page.all("svg"):
        assert attrs.get("aria-hidden") == "true" or (attrs["role"] == "img" and attrs["aria-label"].strip())


def test_page_says_its_language_and_fits_a_phone(page):
    assert page.all("html")[0]["lang"] == "en"
    assert any(meta.get("name") == "viewport" for meta in page.all("meta"))
    policy = next(m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy


def test_nothing_comes_from_outside(data, image_data):
    for html in (render_report(data), render_report(image_data)):
        # Pictures hold any characters; everything else is searched.
        bare = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", html)
        bare = re.sub(r"^\s*// .*$", "", bare, flags=re.MULTILINE)  # comments of the script
        assert OUTSIDE.findall(bare) == []


def test_the_search_for_addresses_finds_them():
    for bad in ("<a href='https://x'>", "src='//cdn.x'", "url(x.png)", "@import 'x'", "<link rel=x>"):
        assert OUTSIDE.search(bad), bad


def test_text_of_users_is_never_markup(data):
    html = render_report(data)
    page = Page(html)
    assert len(page.all("script")) == 1  # our own
    assert not any("onerror" in attrs for _, attrs in page.elements)
    assert "<b>bold" not in html
    assert "&lt;script&gt;alert(&#39;name&#39;)&lt;/script&gt;" in html
    assert any(text == "<script>alert('name')</script>" for text in page.text)
    assert any('"><img src=x onerror=alert(1)>' in text for text in page.text)


def test_title_settings_and_notes_are_escaped(data):
    nasty = '</style><script>x</script>&"'
    html = render_report(
        replace(data, title=nasty, facts={nasty: nasty}, settings={nasty: nasty}, versions={"dbull": nasty})
    )
    page = Page(html)
    assert len(page.all("script")) == 1
    assert len(page.all("style")) == 1
    assert nasty in page.text


def test_cards_show_the_figures_of_their_clusters(data):
    html = render_report(data)
    for cluster in data.clusters:
        card = html[html.index(f'id="cluster-{cluster.id}"') :].split("</article>")[0]
        assert f"<dd>{cluster.rows:,}</dd>" in card
        assert f"arrival {cluster.first_seen}</dd>" in card
        assert f"--h:{hue(cluster.id)}" in card
        for n in cluster.rows_per_arrival:
            assert not n or f": {n:,}" in card  # said aloud with the bars
    assert "also answers for id</span> 3" in html


def test_a_long_stream_stays_a_page(data):
    n = 2000
    arrivals = tuple(ArrivalPoint(i, 10, None, i + 1, -1.0 * i, 0.1, {i % 300: 10}) for i in range(n))
    lanes = tuple(
        Lane(i, f"Cluster {i}", i, None, None, dict.fromkeys(range(i, n, 300), 10)) for i in range(300)
    )
    happenings = tuple(Event("birth", i, None, (i,)) for i in range(n))
    clusters = tuple(replace(c, rows_per_arrival=(1,) * n) for c in data.clusters)
    html = render_report(
        replace(data, arrivals=arrivals, lanes=lanes, happenings=happenings, clusters=clusters)
    )
    Page(html)
    assert len(html) < 3_000_000


def test_arrivals_without_figures_are_left_out(data):
    arrivals = tuple(ArrivalPoint(i, 10) for i in range(2))
    clusters = tuple(replace(c, rows_per_arrival=(0, 0)) for c in data.clusters)
    page = Page(render_report(replace(data, arrivals=arrivals, lanes=(), happenings=(), clusters=clusters)))
    assert any("Not known yet" in text for text in page.text)


def test_file_is_written_whole_or_not_at_all(data, tmp_path):
    path = write_report(data, tmp_path / "new" / "report.html")
    assert path.read_text(encoding="utf-8") == render_report(data)
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
    with pytest.raises(SettingsError, match="is a folder"):
        write_report(data, tmp_path)
    with pytest.raises(SettingsError, match="cannot be"):
        write_report(data, path / "below" / "report.html")
