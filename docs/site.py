"""MkDocs hook: links from pages to files of the repository lead to copies of them in the site.

A page links to ``../claims/test_cache.py`` as it does in the repository; the site has that file as
``files/claims/test_cache.py.txt``.  A link to a file that is not there ends the build.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
HREF = re.compile(r"""(?:href|src)="([^"#?][^"?]*)["?]""")
LINK = re.compile(r"\]\(((?:\.\./)[^)#\s]+)((?:#[^)]*)?)\)")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links out of docs/ to copies of what they name."""
    folder = posixpath.dirname(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        inside = posixpath.normpath(posixpath.join(folder, match[1]))
        if not inside.startswith("../"):
            return match[0]
        name = inside.removeprefix("../")
        if not (ROOT / name).exists():
            raise PluginError(f"{page.file.src_uri}: {match[1]} leads nowhere")
        return f"]({posixpath.relpath(_copied(name, config, files), folder or '.')})"

    return LINK.sub(moved, markdown)


def _copied(name: str, config: MkDocsConfig, files: Files) -> str:
    """The path in the site of a file's copy, or of a folder's list."""
    uri, source = f"files/{name}.txt", ROOT / name
    if files.get_file_from_path(uri) is None:
        if source.is_dir():
            text = "".join(f"{each.name}\n" for each in sorted(source.iterdir()))
        else:
            text = source.read_text()
        files.append(File.generated(config, uri, content=text))
    return uri


def on_post_build(config: MkDocsConfig) -> None:
    """Follow every link of the built pages that stays in the site; a dead one ends the build."""
    site = Path(config.site_dir)
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":
            continue  # it is served from anywhere
        for link in HREF.findall(page.read_text()):
            target = page.parent / unquote(link.partition("#")[0])
            if urlsplit(link).scheme == "" and not target.exists():
                raise PluginError(f"{page.relative_to(site)}: {link} leads nowhere")
