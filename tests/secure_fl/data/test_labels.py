import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_fl.data.labels import ClassList, label_text
from secure_fl.errors import LabelError


def row(i: int) -> str:
    return f"row {i} of b.npz"


def test_integers_whole_floats_booleans_text_and_bytes_are_one_kind_of_label():
    names = ClassList(("0", "1"))
    for values in (
        np.array([0, 1], np.uint8),
        np.array([0, 1], np.int64),
        np.array([0.0, 1.0], np.float32),
        np.array([False, True]),
        np.array(["0", " 1 "]),
        np.array([b"0", b"1"]),
        np.array(["0.0", "+1"]),
    ):
        text = label_text(values, client="b", where=row)
        assert names.codes(text, client="b", where=row).tolist() == [0, 1]


def test_integer_classes_sort_by_value_and_text_classes_as_text():
    assert ClassList.union([["10", "9"], ["-1"]]).names == ("-1", "9", "10")
    assert ClassList.union([["10", "9"], ["b"]]).names == ("10", "9", "b")


def test_leading_zeros_make_a_name_not_a_number():
    names = ClassList.union([["007", "7"]])
    assert set(names.names) == {"007", "7"}
    assert names.codes(["7.0"], client="b", where=row).tolist() == [names.names.index("7")]


@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=30), st.data())
def test_codes_are_places_in_the_list_and_come_back_as_names(labels, data):
    try:
        names = ClassList.union([labels])
    except LabelError:
        # One number in two spellings, which the union refuses.
        return
    drawn = data.draw(st.lists(st.sampled_from(labels)))
    codes = names.codes(drawn, client="b", where=row)
    assert [names.names[code] for code in codes] == drawn


def test_an_unknown_label_names_client_place_label_and_classes():
    with pytest.raises(LabelError) as caught:
        ClassList(("cat", "dog")).codes(["dog", "cow"], client="b", where=row)
    assert str(caught.value) == (
        'client "b": label "cow" in row 1 of b.npz is none of the federation\'s 2 classes'
        " (cat, dog); correct the label or make the class list anew"
    )


def test_a_long_class_list_is_shown_cut():
    names = ClassList(tuple(f"class{i:02d}" for i in range(20)))
    with pytest.raises(LabelError, match=r"class11 and 8 more\)"):
        names.codes(["x"], client="b", where=row)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            np.array([1.0, 1.5]),
            'client "b": label 1.5 in row 1 of b.npz is not a whole number; a class label is a'
            " whole number or text",
        ),
        (
            np.array([np.nan, 1.0]),
            'client "b": label nan in row 0 of b.npz is not a whole number; a class label is a'
            " whole number or text",
        ),
        (
            np.array(["a", " "]),
            'client "b": empty label in row 1 of b.npz; label the record or remove it',
        ),
        (
            np.array([b"\xff"]),
            "client \"b\": label b'\\xff' in row 0 of b.npz is not UTF-8; store it as text",
        ),
        (
            np.array([1j]),
            'client "b": labels of type complex128; store whole numbers or text',
        ),
    ],
)
def test_what_cannot_be_a_label_is_refused_with_its_place(values, message):
    with pytest.raises(LabelError) as caught:
        label_text(values, client="b", where=row)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "class list: no classes; give at least two"),
        (("a", ""), "class list: entry 1 is ''; every class needs a name"),
        (("a", "a"), 'class list: "a" and "a" name the same class; keep one spelling'),
        (("3", "3.0"), 'class list: "3" and "3.0" name the same class; keep one spelling'),
    ],
)
def test_a_class_list_has_distinct_names(names, message):
    with pytest.raises(LabelError) as caught:
        ClassList(names)
    assert str(caught.value) == message


def test_clients_that_spell_one_number_in_two_ways_are_refused():
    with pytest.raises(LabelError, match=r'"3" and "3\.0" name the same class'):
        ClassList.union([["3"], ["3.0", "4"]])


# ------------------------------------------------------- what numbers and arrays cannot hold


BEYOND = 2**53


def test_integer_classes_beyond_2_to_the_53_stay_apart_and_in_order():
    names = [str(BEYOND + 1), str(-BEYOND - 1), str(BEYOND), str(-BEYOND), "1" + "0" * 400]
    listed = ClassList.union([names])
    assert list(listed.names) == sorted(names, key=int)
    assert listed.codes([f"{BEYOND + 1}.0"], client="b", where=row).tolist() == [3]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_every_integer_label_of_an_array_is_exact(values):
    assert label_text(np.array(values, np.int64), client="b", where=row) == list(map(str, values))
    unsigned = np.array([value + 2**63 for value in values], np.uint64)
    assert label_text(unsigned, client="b", where=row) == [str(value + 2**63) for value in values]


@pytest.mark.parametrize(
    ("kind", "bits"), [(np.float16, 11), (np.float32, 24), (np.float64, 53), (np.longdouble, 64)]
)
def test_float_labels_are_taken_below_the_type_s_own_limit(kind, bits):
    """At the limit 2^bits the type has rounded its neighbour to the same value already."""
    if np.finfo(kind).nmant + 1 != bits:
        pytest.skip(f"{kind.__name__} is another type on this machine")
    below = kind(2**bits - 1)
    assert label_text(np.array([below, -below]), client="b", where=row) == [
        str(2**bits - 1),
        str(1 - 2**bits),
    ]
    with pytest.raises(LabelError, match=rf"in row 1 of b\.npz is not below 2\^{bits}, up to"):
        label_text(np.array([0, -(kind(2) ** bits)], kind), client="b", where=row)


@pytest.mark.parametrize(
    "values", [["y", "x\0"], np.array(["y", "x\0z"]), np.array([b"y", b"\0z"])]
)
def test_a_label_with_a_nul_is_refused(values):
    """Arrays of fixed-width text, in which files keep names, lose a NUL at the end."""
    with pytest.raises(LabelError, match=r"in row 1 of b\.npz holds a NUL; leave it out"):
        label_text(values, client="b", where=row)
    with pytest.raises(LabelError, match=r"entry 1 is 'x\\x00'; leave out the NUL"):
        ClassList(("x", "x\0"))
