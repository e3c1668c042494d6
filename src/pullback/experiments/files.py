"""Where the data of a task come from: files of a folder that the user names, or small samples that are built in."""

import lzma
from importlib import resources
from pathlib import Path
from typing import Annotated, TextIO

import tyro

from pullback.experiments.mistakes import Mistake

DataFolder = Annotated[str, tyro.conf.arg(aliases=("--data",))]
"""A setting of a task: the folder that holds its files; built-in samples if it is empty."""

SOURCES = {
    "g2p": "the files of SIGMORPHON 2021, task 1 (Ashby et al., 2021), github.com/sigmorphon/2021-task1",
    "glove100": "words.txt and vectors.f16.npy, 100 dimensions of GloVe 6B, nlp.stanford.edu/projects/glove",
    "listops": "the files of Nangia and Bowman (2018), github.com/nyu-mll/spinn, python/spinn/data/listops",
    "morphseg": "the files of Batsuren et al. (2022), github.com/sigmorphon/2022SegmentationST",
    "sentence_polarity": "the sentences of Pang and Lee (2005), sentence_polarity in nltk_data, in one file; a line is "
    "a label (1 for the film, 0 against it), a fold 0 to 9 and the words, with tabs between them",
    "ud_english_ewt": "the CoNLL-U files of github.com/UniversalDependencies/UD_English-EWT",
    "wnut17": "the files of Derczynski et al. (2017), github.com/leondz/emerging_entities_17",
}
"""The data sets that tasks read, each a folder of the data folder, and where they are published."""


def lines_of(folder: str, name: str) -> list[str]:
    """The lines of a text file, without their ends.

    folder: the data folder; "" for the sample that is built in.
    name: of the file in it, such as "listops/test_d20a.tsv".  A file that ends in .xz besides is read as well.
    """
    if not folder:
        return resources.files(__package__).joinpath("samples", *name.split("/")).read_text("utf-8").splitlines()
    path = path_of(folder, name)
    try:
        with _opened(path) as file:
            return file.read().splitlines()
    except (OSError, EOFError, UnicodeError, lzma.LZMAError) as error:
        raise Mistake(f"{path} cannot be read: {error}") from error


def _opened(path: Path) -> TextIO:
    """A text file, also one that begins with a byte order mark, as editors on Windows write it."""
    encoding = "utf-8-sig"
    return lzma.open(path, "rt", encoding=encoding) if path.suffix == ".xz" else path.open(encoding=encoding)


def path_of(folder: str, name: str) -> Path:
    """A file of the data folder, or the compressed file beside it; `Mistake` if there is neither."""
    plain = Path(folder) / name
    for path in (plain, plain.with_name(f"{plain.name}.xz")):
        if path.is_file():
            return path
    data_set = name.partition("/")[0]
    raise Mistake(f"{plain} is not there.  --data is a folder with a folder {data_set} in it: {SOURCES[data_set]}.")
