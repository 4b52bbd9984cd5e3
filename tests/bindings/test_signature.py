"""Parameters: annotations become a JSON Schema that means what the check enforces, and what cannot be sent is refused at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict, Union

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.bindings.binding import Binding, BindingContext
from callgate.bindings.form import Mismatch
from callgate.bindings.registry import BindingRegistry
from callgate.bindings.signature import Parameters


@dataclass
class Point:
    x: int
    y: float = 0.0
    tags: list[str] = field(default_factory=list)


@dataclass
class Even:
    n: int

    def __post_init__(self) -> None:
        if self.n % 2:
            raise ValueError("n must be even")


@dataclass
class Chain:
    next: Chain | None = None


class Options(TypedDict):
    depth: int
    name: NotRequired[str]


def takes(
    a: int,
    b: float,
    c: str,
    d: bool,
    e: None,
    f: list[int],
    g: dict[str, float],
    h: Optional[int],  # noqa: UP045 - this spelling too
    i: Union[str, list[str]],  # noqa: UP007
    j: Literal["x", "y", 3],
    k: Point,
    m: Options,
    n: Any,
    o: list,  # type: ignore[type-arg]
    p: dict,  # type: ignore[type-arg]
    q: float | int,
    r: Annotated[int, "how many"] = 4,
) -> None:
    """Takes one of each."""


def parameters(function: Any) -> Parameters:
    found = BindingRegistry({"f": function})["f"].parameters
    assert isinstance(found, Parameters)
    return found


def refusal_of(check: Callable[[], object]) -> str | None:
    """What a check says against a value; None if it lets it through."""
    try:
        check()
    except Mismatch as error:
        return str(error)
    return None


scalars = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5).map(lambda x: round(x, 1)) | st.sampled_from(["x", "y", ""])
)
names = st.sampled_from(["x", "y", "depth", "name", "tags", "z"])
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=6
)


@given(name=st.sampled_from(list(parameters(takes).schema["properties"])), value=json_values)
def test_the_schema_and_the_check_agree_on_every_value(name: str, value: Any) -> None:
    whole = parameters(takes)
    valid = jsonschema.Draft202012Validator(whole.schema["properties"][name]).is_valid(value)
    refusal = refusal_of(lambda: whole._checks[name](value, name))
    assert (refusal is None) == valid, refusal
    assert refusal is None or refusal.startswith(name)


def test_the_schema_is_that_of_the_annotations() -> None:
    schema = parameters(takes).schema
    assert schema["properties"]["a"] == {"type": "integer"}
    assert schema["properties"]["h"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert schema["properties"]["j"] == {"enum": ["x", "y", 3]}
    assert schema["properties"]["k"]["required"] == ["x"]
    assert schema["properties"]["m"]["required"] == ["depth"]
    assert schema["properties"]["n"] == {}
    assert schema["properties"]["r"] == {"type": "integer", "description": "how many", "default": 4}
    assert schema["required"] == list("abcdefghijkmnopq")
    jsonschema.Draft202012Validator.check_schema(schema)


def test_values_arrive_as_the_annotations_say() -> None:
    def take(point: Point, options: Options, ratio: float, number: float | int) -> None: ...

    # The classes of a function's own scope cannot be looked up by name, so these are the module's.
    _, named = parameters(take).bind([], {"point": {"x": 2.0}, "options": {"depth": 1}, "ratio": 3, "number": 3})
    assert named == {"point": Point(2, 0.0, []), "options": {"depth": 1}, "ratio": 3.0, "number": 3}
    assert (type(named["point"].x), type(named["ratio"]), type(named["number"])) == (int, float, int)


def ordered(a: int, /, b: int = 2, *, c: int = 3) -> None: ...


@pytest.mark.parametrize(
    ("positional", "named", "expected"),
    [
        ([1], {}, ([1], {})),
        ([1, 5], {"c": 6}, ([1], {"b": 5, "c": 6})),
        ([], {"a": 1}, ([1], {})),
    ],
)
def test_arguments_find_their_parameters(positional: list[Any], named: dict[str, Any], expected: Any) -> None:
    assert parameters(ordered).bind(positional, named) == expected


@pytest.mark.parametrize(
    ("positional", "named", "message"),
    [
        ([], {}, "missing: a"),
        ([1, 2, 3], {}, "3 arguments were given in order; it takes 2"),
        ([1], {"a": 1}, "a: given twice"),
        ([1], {"d": 1}, "there is no argument 'd'; it takes a, b, c"),
        (["1"], {}, "a: must be an integer, not string"),
        ([True], {}, "a: must be an integer, not boolean"),
        ([1.5], {}, "a: must be an integer, not number"),
        ([None], {}, "a: must be an integer, not null"),
    ],
)
def test_wrong_arguments_are_named(positional: list[Any], named: dict[str, Any], message: str) -> None:
    with pytest.raises(Mismatch) as caught:
        parameters(ordered).bind(positional, named)
    assert str(caught.value) == message


def test_the_place_of_a_mistake_is_named_however_deep() -> None:
    def take(points: list[Point]) -> None: ...

    with pytest.raises(Mismatch, match=r"^points\[1\]\.x: must be an integer, not string$"):
        parameters(take).bind([[{"x": 1}, {"x": "2"}]], {})
    with pytest.raises(Mismatch, match=r"^points\[0\]: has no 'z'; it has x, y, tags$"):
        parameters(take).bind([[{"x": 1, "z": 1}]], {})


def test_what_a_dataclass_refuses_is_a_mistake_of_the_caller() -> None:
    def take(even: Even) -> None: ...

    with pytest.raises(Mismatch, match="even: n must be even"):
        parameters(take).bind([{"n": 3}], {})


def test_numbers_too_large_for_a_float_are_refused() -> None:
    def take(ratio: float) -> None: ...

    for value in (10**400, float("inf")):
        with pytest.raises(Mismatch, match="too large"):
            parameters(take).bind([value], {})


def many(*numbers: int) -> None: ...
def anything(**named: int) -> None: ...
def of_bytes(data: bytes) -> None: ...
def of_set(data: set[int]) -> None: ...
def of_keys(data: dict[int, str]) -> None: ...
def of_chain(data: Chain) -> None: ...
def of_unknown(data: Unknown) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def of_literal(data: Literal[b"x"]) -> None: ...
def of_contexts(a: BindingContext, b: BindingContext) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (many, r"binding 'f': \*numbers would take any number of arguments"),
        (anything, r"binding 'f': \*\*named would take arguments of any name"),
        (of_bytes, "parameter data: bytes cannot be sent as JSON; use str, int"),
        (of_set, r"parameter data: set\[int\] cannot be sent"),
        (of_keys, r"the keys of a JSON object are str, so dict\[int"),
        (of_chain, "Chain refers to itself"),
        (of_unknown, "an annotation cannot be resolved"),
        (of_literal, "the literal b'x' cannot be sent"),
        (of_contexts, "one parameter may be the BindingContext"),
    ],
)
def test_what_a_guest_could_not_give_is_refused_at_registration(function: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        BindingRegistry({"f": function})


def test_methods_partials_and_callable_objects_are_functions_too() -> None:
    class Counter:
        def add(self, n: int) -> int:
            return n

        def __call__(self, n: int) -> int:
            return n

    def scaled(factor: int, n: int) -> int:
        return factor * n

    for function in (Counter().add, Counter(), functools.partial(scaled, 3)):
        whole = parameters(function)
        assert whole.schema["properties"]["n"] == {"type": "integer"}
        with pytest.raises(Mismatch, match="n: must be an integer"):
            whole.bind([], {"n": "x"})


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}},
    "required": ["n"],
    "additionalProperties": False,
}


def test_an_explicit_schema_takes_the_place_of_the_annotations() -> None:
    whole = parameters(Binding(anything, schema=SCHEMA))
    assert whole.schema == SCHEMA
    assert whole.bind([2], {}) == ([], {"n": 2})
    for named, message in (
        ({"n": 0}, "arguments.n: must be at least 1"),
        ({}, "arguments: 'n' is missing"),
        ({"m": 1}, "'n' is missing"),
    ):
        with pytest.raises(Mismatch, match=message):
            whole.bind([], named)


def test_what_of_a_schema_cannot_be_enforced_is_said() -> None:
    for schema, message in (
        ({"type": "array"}, "must be of type object"),
        ({"properties": {"n": {"type": "int"}}}, r"properties.n.type|n.type: 'int' is not a type"),
        ({"propertyNames": {}}, "'propertyNames' cannot be enforced"),
        ({"properties": {"n": {"$ref": "https://example.com/n"}}}, "only references into the schema itself"),
        ({"properties": {"n": {"pattern": "("}}}, "pattern"),
    ):
        with pytest.raises(ValueError, match=message):
            BindingRegistry({"f": Binding(anything, schema=schema)})


schemas: st.SearchStrategy[dict[str, Any]] = st.deferred(
    lambda: st.one_of(
        st.fixed_dictionaries({"type": st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])}),
        st.fixed_dictionaries({"enum": st.lists(scalars, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"const": scalars}),
        st.fixed_dictionaries({"minimum": st.integers(-3, 3)}, optional={"exclusiveMaximum": st.integers(-3, 5)}),
        st.fixed_dictionaries(
            {"minLength": st.integers(0, 2)}, optional={"maxLength": st.integers(0, 2), "pattern": st.just("x")}
        ),
        st.fixed_dictionaries({"maxItems": st.integers(0, 2), "items": schemas}),
        st.fixed_dictionaries(
            {"properties": st.dictionaries(names, schemas, max_size=2), "required": st.lists(names, max_size=2)}
        ),
        st.fixed_dictionaries({"additionalProperties": st.booleans() | schemas}),
        st.fixed_dictionaries({"anyOf": st.lists(schemas, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"oneOf": st.lists(schemas, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"allOf": st.lists(schemas, min_size=1, max_size=2)}),
    )
)


@given(schema=schemas, value=json_values)
def test_an_explicit_schema_is_enforced_as_jsonschema_enforces_it(schema: dict[str, Any], value: Any) -> None:
    whole = {"type": "object", "properties": {"v": schema}}
    checked = parameters(Binding(anything, schema=whole))
    valid = jsonschema.Draft202012Validator(whole).is_valid({"v": value})
    refusal = refusal_of(lambda: checked.bind([], {"v": value}))
    assert (refusal is None) == valid, refusal


def test_references_within_a_schema_are_followed_also_round_in_circles() -> None:
    schema = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/Tree"}},
        "$defs": {"Tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/Tree"}, "n": {"type": "integer"}}}},
    }
    whole = parameters(Binding(anything, schema=schema))
    whole.bind([], {"tree": {"left": {"left": {"n": 1}}}})
    with pytest.raises(Mismatch, match=r"arguments\.tree\.left\.left\.n: must be an integer"):
        whole.bind([], {"tree": {"left": {"left": {"n": "x"}}}})
