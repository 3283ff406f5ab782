"""The book's commands: main.py prints the new one for `python main.py train` or `generate`, and runs it."""

import runpy
import sys
from pathlib import Path

from config import ConfigError
from gan.command_line import log, looks_like_option
from gan.files import as_word, printable
from gan.language import said, text


def translated(words: list[str]) -> list[str]:
    """Return the program and the options here for the words of a book's command.

    Raises:
        ConfigError: the book has no such command.
    """
    verb, *options = words or ["help"]
    if verb not in ("train", "generate"):
        if not verb.strip("-").startswith("h"):
            raise ConfigError("there is no command {}; expected train, generate or help", printable(verb))
        return ["train.py", "--help"]
    names = {word.partition("=")[0].replace("-", "_").strip("_") for word in options if looks_like_option(word)}
    if verb == "train":
        own = [] if names & {"preset", "resume"} else ["--preset=book"]
    else:  # the book chose the best of 512; its bare --nogen is a switch, where ours has a number
        own = ["--gen_search_num=512"] if "netd_path" in names and "gen_search_num" not in names else []
        switches = zip(options, [*options[1:], "--"], strict=True)
        options = [word for word, next_ in switches if word != "--nogen" or not looks_like_option(next_)]
    return [f"{verb}.py", *own, *options]


if __name__ == "__main__":
    try:
        program, *options = translated(sys.argv[1:])
    except ConfigError as error:
        log(f"{Path(__file__).name}: {said(error)}", sys.stderr)
        sys.exit(2)
    log(text("main.py is the book's; here it is: python {}").format(" ".join(map(as_word, [program, *options]))))
    sys.argv[:] = program, *options
    runpy.run_path(str(Path(__file__).with_name(program)), run_name="__main__")
