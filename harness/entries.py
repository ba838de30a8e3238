"""One object of vLLM's source as data: what griffe read of it, in the words that the snapshots keep."""

from __future__ import annotations

import ast
import contextlib
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import griffe

if TYPE_CHECKING:
    from collections.abc import Iterator

# How an entry's parts are meant: parameters of a function, fields of a dataclass, or plain words.
Shape: TypeAlias = Literal["takes", "fields", "is"]
# Stands for the default of a field that a constructor does not take.
LATER = "set later"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One object: where it was found, and its parameters or fields as ``name``, ``name=default``.

    As in a signature, ``*`` stands before what can only be given by keyword, ``/`` after what cannot.
    """

    name: str
    place: str
    parameters: tuple[str, ...]
    shape: Shape = "takes"
    returns: str | None = None
    source: str = ""
    also: tuple[str, ...] = ()
    """Other watched modules that it can be imported from."""

    @property
    def module(self) -> str:
        return f"vllm.{self.place.partition(':')[0]}".removesuffix(".")

    @property
    def where(self) -> str:
        return f"vllm.{self.place.replace(':', '.')}"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        names = (parameter.lstrip("*").partition("=")[0] for parameter in self.parameters)
        return tuple(name for name in names if name.isidentifier())


def entries(found: Any, name: str, place: str, members: tuple[str, ...]) -> list[Entry]:
    """What a griffe object and those of its members that are asked for look like to a client."""
    if found.is_function:
        keywords = [_keyword(found, member, f"{name}({member})", place) for member in members]
        return [_member(found, name, place), *keywords]
    if not found.is_class:  # A constant, or an older name of a class.
        return [] if members else [_member(found, name, place)]
    entries = []
    for member in members:
        if member == "fields":
            entries.append(Entry(name=name, place=place, parameters=_fields(found), shape="fields"))
        elif member == "bases":
            bases = tuple(str(base) for base in found.bases)
            entries.append(Entry(name=f"{name}.bases", place=place, parameters=bases, shape="is"))
        elif member in found.members and not found.members[member].is_alias:
            entries.append(_member(found.members[member], f"{name}.{member}", place))
    return entries


def _member(found: Any, name: str, place: str) -> Entry:
    """A function, or what an attribute is made with."""
    if found.is_function:
        return _function(found, name, place)
    words = ("property",) if "property" in found.labels else (str(found.value),)
    return Entry(name=name, place=place, parameters=words, shape="is")


def _keyword(function: griffe.Function, keyword: str, name: str, place: str) -> Entry:
    calls = (node for node in ast.walk(ast.parse(textwrap.dedent(function.source))) if isinstance(node, ast.Call))
    given = (each for call in calls for each in call.keywords if f"{each.arg}=" == keyword)
    return Entry(name=name, place=place, parameters=tuple(ast.unparse(each.value) for each in given), shape="is")


def _function(function: griffe.Function, name: str, place: str) -> Entry:
    returns = None if function.returns is None else _modern(str(function.returns))
    parameters = tuple(_parameters(function))
    return Entry(name=name, place=place, parameters=parameters, returns=returns, source=function.source)


def _parameters(function: griffe.Function) -> Iterator[str]:
    kinds = griffe.ParameterKind
    stars = {kinds.var_positional: "*", kinds.var_keyword: "**"}
    own = {"self", "cls"} if function.parent is not None and function.parent.is_class else set()
    parameters = [each for each in function.parameters if each.name not in own]
    for number, parameter in enumerate(parameters):
        before = None if number == 0 else parameters[number - 1].kind
        if before is kinds.positional_only and parameter.kind is not before:
            yield "/"
        if parameter.kind is kinds.keyword_only and before not in (kinds.var_positional, kinds.keyword_only):
            yield "*"
        star = stars.get(parameter.kind, "") if parameter.kind is not None else ""
        default = "" if star or parameter.default is None else f"={_literal(str(parameter.default), function)}"
        yield f"{star}{parameter.name}{default}"


def _literal(default: str, holder: Any) -> str:
    """A default that is a constant's name as the constant's value, so that it shows when that changes."""
    while holder is not None:
        constant = holder.members.get(default)
        if constant is not None and not constant.is_alias and constant.is_attribute and constant.value is not None:
            with contextlib.suppress(ValueError):
                return repr(ast.literal_eval(str(constant.value)))
        holder = holder.parent
    return default


class _Modern(ast.NodeTransformer):
    """``Optional[X]`` and ``Union[X, Y]`` as ``X | None`` and ``X | Y``, ``List`` as ``list``."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.value).rpartition(".")[2]
        if name == "Optional":
            return ast.BinOp(node.slice, ast.BitOr(), ast.Constant(None))
        if name == "Union" and isinstance(node.slice, ast.Tuple):
            union = node.slice.elts[0]
            for other in node.slice.elts[1:]:
                union = ast.BinOp(union, ast.BitOr(), other)
            return union
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(node.id.lower()) if node.id in ("List", "Dict", "Tuple", "Set") else node


def _modern(annotation: str) -> str:
    """An annotation in today's spelling: vLLM changed to it with 0.11.1, and nothing else."""
    return ast.unparse(_Modern().visit(ast.parse(annotation, mode="eval")))


def _fields(cls: griffe.Class) -> tuple[str, ...]:
    return tuple(
        name if member.value is None else f"{name}={_literal(_default(str(member.value)), cls)}"
        for name, member in cls.members.items()
        if isinstance(member, griffe.Attribute)
        and member.annotation is not None
        and "instance-attribute" in member.labels  # Not a ClassVar, not a property.
        and not name.startswith("_")
    )


def _default(value: str) -> str:
    """A field's default without the call around it.

    ``4``, ``field(default=4)`` and ``Field(default=4, ge=0)`` are the same to who constructs the class; vLLM
    went from one to the other release by release, and the snapshots should tell of what changed.
    """
    call = ast.parse(value, mode="eval").body
    if not (isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in ("field", "Field")):
        return value
    named = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    if named.get("init") == "False":
        return LATER
    if call.args:
        return ast.unparse(call.args[0])
    if "default" in named:
        return named["default"]
    if "default_factory" in named:
        made = ast.parse(named["default_factory"], mode="eval").body
        return ast.unparse(made.body) if isinstance(made, ast.Lambda) else f"{ast.unparse(made)}()"
    return value
