"""A hook of mkdocs (mkdocs.yml): the documents beside docs/ become pages, links lead to pages.

The documents are written for the repository: README.md links docs/chat.md, docs/hub.md links
../models.md. On the site all pages lie in one folder. A link to a file that is no page, such as a
source, leads to the repository if mkdocs.yml has a repo_url; else its text stays, without a link.
A link to what does not exist stays as it is, and mkdocs reports it.

In a table GitHub wants a bar within code as \\|, Python-Markdown as it is.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
FRONT = "README.md"  # is the site's first page
BESIDE = (FRONT, "models.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\|.*$", re.MULTILINE)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in BESIDE:
        files.append(File.generated(config, site_name(name), abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    folder = "" if page.file.src_uri in map(site_name, BESIDE) else "docs"

    def led(link: re.Match[str]) -> str:
        path, hash_mark, anchor = link["target"].partition("#")
        if not path or "://" in path or not (ROOT / folder / path).exists():
            return link[0]
        found = posixpath.normpath(posixpath.join(folder, path))
        if found in BESIDE or found.startswith("docs/"):
            place = site_name(found.removeprefix("docs/"))
        elif config.repo_url:
            place = posixpath.join(config.repo_url, "blob/HEAD", found)
        else:
            return link["text"]
        return f"{link['image']}[{link['text']}]({place}{hash_mark}{anchor})"

    # A link's text may be code, but no link begins within it.
    spans = [span.span() for span in CODE.finditer(markdown)]

    def outside(link: re.Match[str]) -> str:
        inside = any(begin < link.start() < end for begin, end in spans)
        return link[0] if inside else led(link)

    return ROW.sub(bars, LINK.sub(outside, markdown))


def bars(row: re.Match[str]) -> str:
    """Return a table's row with plain bars in its code."""
    return CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0])


def site_name(name: str) -> str:
    """Return the file's name on the site."""
    return "index.md" if name == FRONT else name
