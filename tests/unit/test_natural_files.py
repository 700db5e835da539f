"""Data sets whose rows belong to clients: their files are read right, shown on small ones in the same format."""

import lzma
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedmbo_ray.data.columns import encoded_columns, held_out_of_each
from fedmbo_ray.data.natural import adult, chem97, exercises, fars, speeches

KEEL = """@relation fars
@attribute CASE_STATE {Alabama,Alaska}
@attribute AGE real [0.0,99.0]
@attribute SEX {Male,Female,Unknown}
@attribute INJURY_SEVERITY {No_Injury,Fatal_Injury}
@inputs CASE_STATE, AGE, SEX
@outputs INJURY_SEVERITY
@data
Alabama, 34, Male, Fatal_Injury
Alaska, 7, Female, No_Injury
Alabama, 20, Unknown, No_Injury
Alaska, 8, Female, Fatal_Injury
Alaska, 9, Male, No_Injury
Alabama, 21, None, No_Injury
"""

ADULT = """39, State-gov, 77516, Bachelors, 13, Never-married, Sales, Unmarried, White, Male, 2174, 0, 40, Cuba, <=50K
50, Private, 83311, Masters, 14, Divorced, ?, Husband, White, Female, 0, 0, 13, Cuba, >50K

"""
ADULT_TEST = """|1x3 Cross validator
25, Private, 226802, 11th, 7, Divorced, ?, Own-child, Black, Male, 0, 0, 40, ?, <=50K.
"""


def test_words_become_columns_and_rare_ones_don_t() -> None:
    table = pd.DataFrame({"age": [3, 4] * 150, "sex": ["m", "f"] * 150, "one": ["x"] * 300})
    assert encoded_columns(table)[:2].tolist() == [[3, 1], [4, 0]]
    words = pd.DataFrame({"colour": ["red"] * 200 + ["blue"] * 99 + ["mauve"]})
    columns = encoded_columns(words)
    assert columns.dtype == np.float32
    assert columns.sum(axis=0).tolist() == [99, 200]


def test_a_fixed_part_of_every_client_is_held_out() -> None:
    clients = np.array([0] * 10 + [1] * 5 + [0] * 10 + [2] * 3)
    train, test = held_out_of_each(clients)
    assert sorted([*train, *test]) == list(range(len(clients)))
    assert np.bincount(clients[test]).tolist() == [4, 1, 1]
    assert (held_out_of_each(clients)[1] == test).all()


def test_the_format_of_keel(tmp_path: Path) -> None:
    (tmp_path / "fars.dat").write_text(KEEL)
    table = fars.read_keel(tmp_path / "fars.dat")
    assert table.shape == (6, 4)
    assert table["AGE"].tolist() == [34, 7, 20, 8, 9, 21]
    assert table["SEX"].tolist()[-1] == "None"  # a word and no missing value
    data = fars.of_table(table)
    assert data.client_names == ("Alabama", "Alaska")
    assert data.class_names == ("Fatal_Injury", "No_Injury")
    assert data.clients is not None
    assert (np.bincount(data.clients).tolist(), len(data.test_targets)) == ([2, 2], 2)
    assert data.shape == (5,)  # age, and a column for each of four words


def test_adult_keeps_missing_values_as_words() -> None:
    data = adult.of_texts(ADULT, ADULT_TEST)
    assert (len(data.train_targets), len(data.test_targets)) == (2, 1)
    assert data.client_names == ("?", "Sales")
    assert data.clients is not None
    assert data.clients.tolist() == [1, 0]
    assert (data.class_names, data.train_targets.tolist(), data.test_targets.tolist()) == (
        ("<=50K", ">50K"),
        [0, 1],
        [0],
    )
    assert data.groups is not None
    assert (data.group_names, data.groups.tolist()) == (("Female", "Male"), [1, 0])
    assert data.train_inputs[:, 0].tolist() == [39, 50]


def test_schools_with_two_pupils_are_left_out() -> None:
    columns = {"gender": ["F", "M"] * 4, "age": range(8), "gcsescore": np.linspace(4, 8, 8), "score": [0, 2, 4, 10] * 2}
    table = pd.DataFrame({**columns, "lea": [1] * 8, "school": [1, 1, 1, 2, 2, 3, 3, 3]})
    data = chem97.of_table("chem97_schools", table, "school")
    assert data.client_names == ("1", "3")
    assert (data.num_classes, data.train_targets.dtype) == (0, np.float64)
    assert data.shape == (3,)
    assert len(data.train_targets) + len(data.test_targets) == 6
    assert chem97.of_table("chem97", table, "lea").num_clients == 1


def test_a_pickled_frame_is_read_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chem97, "fetch", lambda *arguments: None)
    folder = tmp_path / "chem97"
    folder.mkdir()
    file = folder / "Chem97.pkl.compress"
    file.write_bytes(lzma.compress(pickle.dumps(pd.DataFrame([[1, 2]]))))
    assert chem97._table("chem97", tmp_path).to_numpy().tolist() == [[1, 2]]
    file.write_bytes(lzma.compress(pickle.dumps(Path("x"))))
    with pytest.raises(pickle.UnpicklingError, match="is no part of a data frame"):
        chem97._table("chem97", tmp_path)


def test_windows_of_a_series_do_not_overlap() -> None:
    times = np.arange(1000.0)[:, None] * np.ones(6)
    data = exercises.of_series({"X": [times, -times], "y": np.array([0, 1]), "subject": [7, 3], "y_labels": ["A", "B"]})
    assert data.train_inputs.shape == (16, 6, 100)
    assert data.test_inputs.shape == (4, 6, 100)
    assert data.train_inputs[:8, 0].flatten().tolist() == list(range(800))
    assert data.test_inputs[0, 5, 0] == 800
    assert data.client_names == ("3", "7")
    assert data.clients is not None
    assert data.clients.tolist() == [1] * 8 + [0] * 8


def test_gaps_in_a_speech() -> None:
    inputs, labels = speeches.gaps(["we", "hope", "for", "peace"], {"we": 1, "hope": 2, "for": 3})
    assert labels.tolist() == [speeches.PREPOSITIONS.index("for")]
    assert inputs.tolist() == [[0, 0, 1, 2, speeches.OTHER, 0, 0, 0]]
    data = speeches.of_speeches([("Ada", "The House of Lords. " * 5), ("Bob", "By sea, in ships; on land. " * 3)])
    assert data.client_names == ("Ada", "Bob")
    assert data.train_inputs.dtype == np.int64
    assert len(data.train_targets) + len(data.test_targets) == 5 + 9
