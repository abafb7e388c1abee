"""Spec strings: they read back, they resolve to one identity, and their errors say where and what instead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemarouter.errors import EXIT_USAGE, UsageError
from schemarouter.retrieval.registry import RETRIEVERS, declaration, resolve
from schemarouter.retrieval.spec import Declaration, Option, Spec, SpecError, parse
from tests.strategies import LAWS

names = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,6}", fullmatch=True)
words = st.from_regex(r"[A-Za-z0-9._/:@+-]{1,8}", fullmatch=True)
quoted = st.sampled_from(["", '"', "\\", "\\\\", '\\"', "a b", "a,b", "(", ")", "x=y", "bm25()", "\n\r\t\x00\x1f\x7f"])
values = words | quoted | st.text(max_size=8) | st.sampled_from(["설비", "荷重\u2028", "Straße", "\U0001f600", "null"])


@st.composite
def specs(draw: st.DrawFn, depth: int = 3) -> Spec:
    """A spec with any values, nested by position and as values."""
    inner = specs(depth - 1) if depth else st.nothing()
    nested = draw(st.lists(inner, max_size=2)) if depth else []
    return Spec(draw(names), tuple(nested), draw(st.dictionaries(names, values | inner, max_size=3)))


def spaced(spec: Spec, gap: str) -> str:
    """The spec with white space wherever it is allowed."""
    parts = [spaced(item, gap) for item in spec.nested]
    for key, value in spec.arguments.items():
        written = str(Spec("x", (), {"y": value}))[len("x(y=") : -1]
        parts.append(f"{key}{gap}={gap}{written}")
    return f"{spec.name}{gap}({gap}{f'{gap},{gap}'.join(parts)}{gap})" if parts else spec.name


@LAWS
@given(spec=specs())
def test_a_spec_reads_back_from_its_string(spec: Spec) -> None:
    again = parse(str(spec))
    assert again == spec
    assert str(again) == str(spec)
    assert hash(again) == hash(spec)


@LAWS
@given(value=st.text())
def test_any_text_can_be_a_value(value: str) -> None:
    assert parse(str(Spec("a", (), {"x": value}))).arguments["x"] == value


@LAWS
@given(spec=specs(), gap=st.sampled_from(["", " ", "   "]))
def test_spaces_between_the_parts_change_nothing(spec: Spec, gap: str) -> None:
    assert parse(f"{gap}{spaced(spec, gap)}{gap}") == spec


@LAWS
@given(arguments=st.dictionaries(names, values, max_size=4), data=st.data())
def test_the_order_of_arguments_is_no_part_of_the_identity(arguments: dict[str, str], data: st.DataObject) -> None:
    shuffled = dict(data.draw(st.permutations(list(arguments.items()))))
    assert str(Spec("a", (), shuffled)) == str(Spec("a", (), arguments))


@LAWS
@given(left=specs(depth=1), right=specs(depth=1))
def test_different_specs_have_different_strings(left: Spec, right: Spec) -> None:
    assert (str(left) == str(right)) == (left == right)


ALPHABET = 'ab1(),="\\ .-_\n설'


@LAWS
@given(text=st.text(ALPHABET, max_size=14) | st.text(st.characters(exclude_categories=()), max_size=8))
def test_whatever_is_typed_gives_a_spec_or_a_spec_error(text: str) -> None:
    try:
        spec = parse(text)
    except SpecError:
        return
    assert parse(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("bm25", Spec("bm25")),
        ("bm25()", Spec("bm25")),
        ("dense(model=use-m3)", Spec("dense", (), {"model": "use-m3"})),
        ("rrf(bm25(k1=1.5),dense,k=60)", Spec("rrf", (Spec("bm25", (), {"k1": "1.5"}), Spec("dense")), {"k": "60"})),
        ("a(x=b(),y=c(z=1))", Spec("a", (), {"x": Spec("b"), "y": Spec("c", (), {"z": "1"})})),
        ('a(x="b()")', Spec("a", (), {"x": "b()"})),
        ("a(path=/models/x:1@+.)", Spec("a", (), {"path": "/models/x:1@+."})),
        (r'a(x="\u00e4\n\"")', Spec("a", (), {"x": 'ä\n"'})),
    ],
)
def test_examples_read_as_written(text: str, spec: Spec) -> None:
    assert parse(text) == spec


@pytest.mark.parametrize(
    ("text", "position", "said"),
    [
        ("", 0, "expected a name, found the end"),
        ("1bm25", 0, "expected a name"),
        ("bm25 x", 5, "expected the end, found 'x'"),
        ("bm25)", 4, "expected the end"),
        ("bm25(", 5, "found the end"),
        ("bm25(k1", 7, "expected ',' or ')'"),
        ("bm25(k1=", 8, "expected a value, found the end"),
        ("bm25(k1=)", 8, "expected a value"),
        ("bm25(k1=1", 9, "expected ',' or ')', found the end"),
        ("bm25(k1=1;b=2)", 9, "expected ',' or ')'"),
        ("bm25(,)", 5, "expected an argument"),
        ("bm25(k1=1,)", 10, "expected an argument"),
        ("rrf(k=1,bm25)", 8, "nested specs before arguments by key"),
        ('a(x="b', 4, "a closed quoted string"),
        ("a(x=b.c(d=1))", 5, "found '.c(d=1))'"),
        ("dense(model=/a b)", 15, "must be in double quotes), found 'b)'"),
        ("dense(model=~/a)", 12, "must be in double quotes), found '~/a)'"),
    ],
)
def test_a_syntax_error_tells_its_position_and_what_was_expected(text: str, position: int, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert isinstance(caught.value, UsageError)
    assert caught.value.exit_code == EXIT_USAGE
    assert f"position {position}:" in str(caught.value)
    assert said in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a(x=1,x=2)", "'x' is given twice"),
        (r'a(x="\q")', "not a valid quoted string"),
        ("a(" * 20, "nested deeper than 16"),
    ],
)
def test_what_is_wrong_beyond_the_grammar_is_said(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["a(x=1,x=2)", r'a(x="\q")', "a(" * 20])
def test_what_is_wrong_beyond_the_grammar_has_a_position_too(text: str) -> None:
    with pytest.raises(SpecError, match=r"position \d+"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "position"),
    [("a(x=1,x=2)", 6), ("a(x=1,  x=2)", 8), (r'a(x="\q")', 4), (r'a(x= "\q")', 5), ("a(" * 20, 34)],
)
def test_the_position_is_that_of_what_is_wrong(text: str, position: int) -> None:
    with pytest.raises(SpecError, match=f", position {position}: "):
        parse(text)


@pytest.mark.parametrize("name", ["", "1a", "a b", "a\n", "설비", "a("])
def test_names_that_could_not_be_read_back_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match="is not a name"):
        Spec(name)
    with pytest.raises(SpecError, match="is not an argument name"):
        Spec("a", (), {name: "1"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bm52", "unknown retriever 'bm52'. Did you mean 'bm25'?"),
        ("zzz", "Known: bm25, dense, random, rrf"),
        ("bm25(k=1)", "bm25: unknown argument 'k'. Did you mean 'k1'? Known: b, epsilon, k1."),
        ("rrf(bm25,bm52)", "Did you mean 'bm25'?"),
        ('dense(model="")', "dense: argument model must not be empty. Known: use-m3."),
        ("bm25(k1=x)", "argument k1='x' must be float"),
        ("rrf(bm25,random,k=1.5)", "argument k='1.5' must be int"),
        ("bm25(k1=nan)", "must be finite"),
        ("bm25(k1=1e999)", "must be finite"),
        ("bm25(b=-0.1)", "argument b=-0.1 must be at least 0"),
        ("rrf(bm25,random,k=-1)", "must be at least 0"),
        ("bm25(random)", "takes 0 nested specs, got 1"),
        ("rrf(bm25)", "takes 2 to 8 nested specs, got 1"),
        ("rrf(" + ",".join(["bm25"] * 9) + ")", "takes 2 to 8 nested specs, got 9"),
        ("bm25(k1=random(seed=1))", "must be a plain value, got the spec random(seed=1)"),
        ("random(seed=" + "9" * 5000 + ")", "must be int"),
    ],
)
def test_what_a_retriever_does_not_take_is_refused_with_what_it_does(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve(text)
    assert said in str(caught.value)


def number(option: Option) -> st.SearchStrategy[str]:
    if option.kind is int:
        return st.integers(0, 99).map(str)
    return st.floats(0, 1).map(str) | st.sampled_from(["1", "0.50", "1e-3"])


@st.composite
def askable(draw: st.DrawFn, depth: int = 2) -> Spec:
    """A spec that the registry takes, with some options left out."""
    name = draw(st.sampled_from(["bm25", "random", "dense", "rrf"] if depth else ["bm25", "random"]))
    nested = tuple(draw(st.lists(askable(depth - 1), min_size=2, max_size=3))) if name == "rrf" else ()
    options = declaration(name).options
    chosen = draw(st.sets(st.sampled_from(sorted(options))))
    arguments = {key: "use-m3" if options[key].suggestions else draw(number(options[key])) for key in chosen}
    return Spec(name, nested, arguments)


def is_full(spec: Spec) -> bool:
    return set(spec.arguments) == set(declaration(spec.name).options) and all(map(is_full, spec.nested))


@LAWS
@given(spec=askable())
def test_resolving_fills_every_default_at_every_level_and_is_idempotent(spec: Spec) -> None:
    full = resolve(spec)
    assert is_full(full)
    assert resolve(full) == full
    assert resolve(str(spec)) == full
    assert resolve(str(full)) == full
    for key, word in spec.arguments.items():
        option = declaration(spec.name).options[key]
        assert option.read("", key, str(full.arguments[key])) == option.read("", key, str(word))


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("bm25", "bm25(b=0.75,epsilon=0.25,k1=1.5)"),
        ("bm25(k1=1.50,b=1)", "bm25(b=1.0,epsilon=0.25,k1=1.5)"),
        ("dense", "dense(model=use-m3)"),
        ('dense(model="/models/설비 1")', 'dense(model="/models/설비 1")'),
        ("dense(model=intfloat/e5-base-v2)", "dense(model=intfloat/e5-base-v2)"),
        ("rrf(bm25,random)", "rrf(bm25(b=0.75,epsilon=0.25,k1=1.5),random(seed=1),k=60)"),
    ],
)
def test_equal_retrievers_have_one_identity(text: str, full: str) -> None:
    assert str(resolve(text)) == full


def test_every_registered_name_is_the_name_it_declares_and_its_defaults_are_valid() -> None:
    for name in RETRIEVERS:
        declared = declaration(name)
        assert declared.name == name
        assert declared.summary
        for key, option in declared.options.items():
            option.read(name, key, option.default)


def test_a_declaration_of_exactly_n_nested_specs_says_so() -> None:
    with pytest.raises(SpecError, match="toy takes 1 nested specs, got 0"):
        Declaration("toy", "", nested_min=1, nested_max=1).values(Spec("toy"))
