"""The site: built with warnings as errors; its links lead somewhere; nothing on it is old or from elsewhere."""

import html
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from kernel_new import explain, questions

ROOT = Path(__file__).parent.parent
PICTURES = sorted((ROOT / "docs/pictures").glob("*.svg"))


class Page(HTMLParser):
    """What a page refers to, and what may be referred to in it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.unnamed = 0
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found["id"]} if "id" in found else set()
        self.links += [found["href"]] if tag == "a" and "href" in found else []
        self.loaded += [found["src"]] if "src" in found else []
        self.loaded += [found["href"]] if tag == "link" and found.get("rel") in ("stylesheet", "icon") else []
        self.unnamed += tag == "img" and not found.get("alt")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not find_spec("furo"):
        pytest.skip("the site needs the extra `docs`")
    built = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", ROOT / "docs", built]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return built


def test_every_link_and_anchor_leads_somewhere(site: Path) -> None:
    page_of = cache(Page)
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 25
    for file in pages:
        for link in page_of(file).links:
            url = urlparse(link)
            if url.scheme or link in ("#", ""):
                continue
            target = (file.parent / unquote(url.path)).resolve() if url.path else file
            assert target.is_file(), f"{file.relative_to(site)}: {link}"
            assert not url.fragment or unquote(url.fragment) in page_of(target).anchors, f"{file.name}: {link}"


def test_nothing_is_loaded_from_elsewhere_and_pictures_have_words(site: Path) -> None:
    for file in site.rglob("*.html"):
        page = Page(file)
        assert [source for source in page.loaded if urlparse(source).netloc] == [], file.name
        assert page.unnamed == 0, file.name
    for picture in PICTURES:
        text = picture.read_text(encoding="utf-8")
        assert not re.search(r"url\(['\"]?http|href=", text), picture.name


def test_every_page_is_in_the_navigation(site: Path) -> None:
    index = Page(site / "index.html").links
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix("")
        if "_build" not in page.parts and str(name) != "index":
            assert f"{name}.html" in index, name


def test_the_reference_is_current() -> None:
    command = [sys.executable, ROOT / "scripts/write_reference.py", "--check"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_the_list_of_topics_is_complete() -> None:
    listed = re.findall(r"^- \[(.+)\]\((.+)\.md\)$", (ROOT / "docs/explain/index.md").read_text(), re.MULTILINE)
    titles = {topic.name: topic.text.splitlines()[0].removeprefix("# ") for topic in explain.topics().values()}
    assert {name: title for title, name in listed} == titles


def words(picture: Path) -> str:
    """The text of a picture of a terminal, without spaces: a line is drawn in pieces."""
    drawn = re.findall(r"<text[^>]*>(.*?)</text>", picture.read_text(encoding="utf-8"))
    return re.sub(r"\s", "", html.unescape("".join(drawn)))


def test_the_pictures_show_what_kernel_new_says_now() -> None:
    asked = questions.asked()
    shown = words(ROOT / "docs/pictures/questions.svg")
    for text in [asked["name"].help, asked["backend"].help, *(c.about for c in asked["backend"].choices)]:
        assert re.sub(r"\s", "", text) in shown, f"{text!r}: run scripts/pictures.py"
    topic = re.sub(r"[\s`#]", "", explain.topics()["variants"].text.split("|")[0])
    assert topic in words(ROOT / "docs/pictures/explain.svg"), "run scripts/pictures.py"
    for step in ("render", "build", "load", "test"):
        assert f"✓{step}" in words(ROOT / "docs/pictures/first-run.svg")


def test_no_picture_shows_the_machine_that_it_was_taken_on() -> None:
    for picture in PICTURES:
        assert not re.search(r"/(tmp|root|work|Users)/", picture.read_text(encoding="utf-8")), picture.name
