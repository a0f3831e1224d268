"""Parses the commands' arguments, and rejects wrong ones with one line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from assay.harness.checking.profiles import PROFILES, check_profile
from assay.harness.results.errors import BadInput
from assay.harness.results.seeds import LARGEST_SEED
from assay.harness.runners.environments import default_folder

LONGEST = 1e9
"""Seconds; the operating system rejects times a few times as long."""


class Parser(argparse.ArgumentParser):
    """Raises `BadInput` where argparse would print its usage, and knows no abbreviations."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, but reject ``--option=--``, which it would read as an empty list."""
        for each in args or ():
            if each == "--":
                break
            if each.startswith("--") and each.endswith("=--"):
                self.error(f"{each.removesuffix('=--')}: '--' is not a value")
        return super().parse_known_args(args, namespace)

    def read(self, arguments: Sequence[str], texts: str) -> argparse.Namespace:
        """Options and ``texts`` in any order; after ``--`` texts only."""
        words = list(arguments)
        cut = words.index("--") if "--" in words else len(words)
        options = self.parse_intermixed_args(words[:cut])
        getattr(options, texts).extend(words[cut + 1 :])
        return options

    def error(self, message: str) -> NoReturn:
        """Reject the arguments."""
        line = message.removeprefix("argument ")
        if line.endswith("expected one argument"):
            line += f"; a value that begins with a dash is written {line.partition(':')[0]}=VALUE"
        raise BadInput(line)


def add_claims(parser: argparse.ArgumentParser, help: str) -> None:
    """``--claim``, once for each claim, as for a run of claims, into ``claims``."""
    add = parser.add_argument
    add("--claim", action="append", dest="claims", default=[], metavar="ID[:TEXT]", help=help)


def add_outside(parser: argparse.ArgumentParser) -> None:
    """``--claims``: claims from outside, beside those of installed packages."""
    help = "claims of your own, too: a file, a folder, or a package (repeatable)"
    named: dict[str, Any] = {"action": "append", "dest": "outside", "type": word, "default": []}
    parser.add_argument("--claims", metavar="PATH", help=help, **named)


def add_profile(parser: argparse.ArgumentParser, default: str = "quick") -> None:
    """``--profile``, one of the known ones."""
    names = ", ".join(PROFILES)
    help = f"how much to try: {names} (default: {default})"
    parser.add_argument("--profile", type=profile, default=default, help=help)


def add_seed(parser: argparse.ArgumentParser, default: int = 0) -> None:
    """``--seed`` of all draws."""
    help = f"of every draw (default: {default})"
    parser.add_argument("--seed", type=whole(0, LARGEST_SEED), default=default, help=help)


def add_environments(parser: argparse.ArgumentParser) -> None:
    """``--environments``, the folder of installed versions."""
    help = "where the versions are kept (default: in the cache folder)"
    parser.add_argument(
        "--environments", metavar="FOLDER", default=str(default_folder()), help=help
    )


def profile(text: str) -> str:
    """The name of a profile; raises `BadInput`."""
    check_profile(text)
    return text


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A whole number from ``least`` on, and up to ``most``."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or (number := _int(text)) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        if most is not None and number > most:
            raise argparse.ArgumentTypeError(f"{text} is too large; the largest is {most}")
        return number

    return read


def _int(digits: str) -> int:
    """The number of ``digits``; Python itself rejects thousands of them."""
    return int(digits[:100])


def positive(text: str) -> float:
    """A number above 0, and not infinite."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def seconds(text: str) -> float:
    """A time limit of a process, in seconds."""
    if (number := positive(text)) > LONGEST:
        raise argparse.ArgumentTypeError(f"{text} seconds are too many; the most are {LONGEST:g}")
    return number


def file(text: str) -> Path:
    """The path of a file, which need not exist, and is not a folder."""
    if (path := Path(word(text))).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is a folder; give a file's path")
    return path


def folder(text: str) -> Path:
    """The path of a folder, which need not exist."""
    return Path(word(text))


def word(text: str) -> str:
    """Any text that is not blank."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is empty; say which")
    return text


def ids(text: str) -> list[int]:
    """Token ids: whole numbers separated by commas."""
    numbers = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of token ids such as 5,17,3")
    return [_int(part) for part in numbers]
