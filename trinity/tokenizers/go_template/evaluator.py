"""Render the tree of a Go template with values.

Everything that a template does is counted: see `budget`. ``DEEPEST`` limits the nesting of calls
and actions. Source of the rules: Go's text/template/exec.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from trinity.errors import TokenizerError
from trinity.tokenizers.go_template import nodes
from trinity.tokenizers.go_template.budget import Budget
from trinity.tokenizers.go_template.functions import FUNCTIONS
from trinity.tokenizers.go_template.printing import written
from trinity.tokenizers.go_template.values import (
    NIL,
    NOTHING,
    Absent,
    Map,
    Slice,
    Value,
    field_of,
    truth,
    type_name,
)

MOST_VARIABLES = 256
DEEPEST = 100  # nested bodies; the parser's limit keeps expressions less deep


class _LeftRangeError(Exception):
    def __init__(self, kind: str) -> None:
        self.kind = kind


class Evaluator:
    """One rendering: its output so far, and its remaining budget.

    ``templates`` are those that it may call by name. ``missing`` is the value of a key that a map
    lacks. With ``go_only`` Ollama's own functions do not exist.
    """

    def __init__(
        self,
        budget: Budget,
        templates: Mapping[str, nodes.Body],
        *,
        missing: Absent = NIL,
        go_only: bool = False,
    ) -> None:
        self._budget = budget
        self._templates = templates
        self._missing = missing
        self._go_only = go_only
        self._depth = 0
        self._parts: list[str] = []
        self._variables: list[tuple[str, Value]] = []

    def text(self, body: nodes.Body, data: Value) -> str:
        """Return the output of ``body`` for ``data``.

        Raises TokenizerError if it fails or costs too much, UnsupportedError for unsupported
        features.
        """
        self._variables = [("$", data)]
        try:
            self._walk(body, data)
        except RecursionError:
            raise self._failed("it is nested too deeply") from None
        return "".join(self._parts)

    def _walk(self, body: nodes.Body, dot: Value) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._failed(f"its calls are nested more than {DEEPEST} deep")
        for statement in body:
            self._budget.step()
            if isinstance(statement, nodes.TextNode):
                self._write(statement.text)
            elif isinstance(statement, nodes.Action):
                value = self._pipeline(statement.pipe, dot)
                if not statement.pipe.declared:
                    self._write(written(value))
            elif isinstance(statement, nodes.Branch):
                self._branch(statement, dot)
            elif isinstance(statement, nodes.CallNode):
                self._call(statement, dot)
            else:
                raise _LeftRangeError(statement.kind)
        self._depth -= 1

    def _write(self, text: str) -> None:
        self._budget.make(len(text))
        self._parts.append(text)

    def _branch(self, branch: nodes.Branch, dot: Value) -> None:
        scope = len(self._variables)
        value = self._pipeline(branch.pipe, dot)
        if branch.kind == "range":
            self._range(branch, value, dot)
        elif truth(value):
            self._walk(branch.body, value if branch.kind == "with" else dot)
        elif branch.otherwise is not None:
            self._walk(branch.otherwise, dot)
        del self._variables[scope:]

    def _range(self, branch: nodes.Branch, over: Value, dot: Value) -> None:
        pairs = self._pairs(over, len(branch.pipe.declared))
        if not pairs:
            if branch.otherwise is not None:
                self._walk(branch.otherwise, dot)
            return
        scope, depth = len(self._variables), self._depth
        for key, value in pairs:
            self._budget.step()
            self._declare(branch.pipe, key, value)
            try:
                self._walk(branch.body, value)
            except _LeftRangeError as leave:
                self._depth = depth
                if leave.kind == "break":
                    break
            finally:
                del self._variables[scope:]

    def _pairs(self, over: Value, declared: int) -> list[tuple[Value, Value]]:
        if isinstance(over, Absent):
            return []
        if isinstance(over, Slice):
            self._budget.step(len(over))
            return [(number, value) for number, value in enumerate(over.values())]
        if isinstance(over, Map):
            self._budget.step(len(over.values) << 8)
            return [(key, value) for key, value in over.sorted()]
        if isinstance(over, int) and not isinstance(over, bool) and declared < 2:
            self._budget.step(max(over, 0) << 10)
            return [(NOTHING, number) for number in range(over)]
        raise self._failed(f"a range over {type_name(over)}")

    def _declare(self, pipe: nodes.Pipe, key: Value, value: Value) -> None:
        """Set a range's variables to the next key and value."""
        new = (key, value)[2 - len(pipe.declared) :] if pipe.declared else ()
        for number, name in enumerate(pipe.declared):
            if pipe.assigns:
                self._assign(name, new[number])
            else:
                self._variables[number - len(new)] = (name, new[number])

    def _call(self, call: nodes.CallNode, dot: Value) -> None:
        body = self._templates.get(call.name)
        if body is None:
            raise self._failed(f"the template {call.name[:40]!r} is not defined")
        value = self._pipeline(call.pipe, dot)
        outer, self._variables = self._variables, [("$", value)]
        self._walk(body, value)
        self._variables = outer

    def _pipeline(self, pipe: nodes.Pipe, dot: Value) -> Value:
        value: Value | None = None
        for command in pipe.commands:
            self._budget.step()
            value = self._command(command, dot, value)
            if value is NIL:
                value = NOTHING
        assert value is not None
        for name in pipe.declared:
            if pipe.assigns:
                self._assign(name, value)
            else:
                self._variables.append((name, value))
        if len(self._variables) > MOST_VARIABLES:
            raise self._failed(f"it has more than {MOST_VARIABLES} variables at a time")
        return value

    def _assign(self, name: str, value: Value) -> None:
        for place in range(len(self._variables) - 1, -1, -1):
            if self._variables[place][0] == name:
                self._variables[place] = (name, value)
                return
        raise self._failed(f"the variable {name[:40]} is not declared")

    def _command(self, command: list[nodes.Operand], dot: Value, last: Value | None) -> Value:
        """Evaluate a command; ``last`` is the value of the command before it, if there is one."""
        first = command[0]
        if isinstance(first, nodes.FunctionNode):
            return self._function(first.name, command[1:], dot, last)
        if len(command) > 1 or last is not None:
            raise self._failed("an argument is given to something that is not a function")
        if isinstance(first, nodes.Nil):
            raise self._failed("nil is not a command")
        return self._operand(first, dot)

    def _operand(self, operand: nodes.Operand, dot: Value) -> Value:
        if isinstance(operand, nodes.Literal):
            return operand.value
        if isinstance(operand, nodes.FieldNode):
            return self._fields(dot, operand.names)
        if isinstance(operand, nodes.Variable):
            return self._fields(self._variable(operand.name), operand.names)
        if isinstance(operand, nodes.Pipe):
            return self._pipeline(operand, dot)
        if isinstance(operand, nodes.FunctionNode):
            return self._function(operand.name, [], dot, None)
        if isinstance(operand, nodes.Chain):
            return self._fields(self._operand(operand.of, dot), operand.names)
        return dot if isinstance(operand, nodes.Dot) else NOTHING

    def _fields(self, value: Value, names: list[str]) -> Value:
        for name in names:
            self._budget.step()
            value = field_of(value, name, self._missing)
        return value

    def _variable(self, name: str) -> Value:
        for known, value in reversed(self._variables):
            if known == name:
                return value
        raise self._failed(f"the variable {name[:40]} is not declared")

    def _function(
        self, name: str, operands: list[nodes.Operand], dot: Value, last: Value | None
    ) -> Value:
        given = len(operands) + (last is not None)
        if name in ("and", "or"):
            if not given:
                raise self._failed(f"{name} without arguments")
            value: Value = NOTHING
            for operand in operands:
                self._budget.step()
                value = self._operand(operand, dot)
                if truth(value) == (name == "or"):
                    return value
            return value if last is None else last
        function = FUNCTIONS[name]
        if self._go_only and not function.is_go:
            raise self._failed(f"{name} in the last turn of a template without .Messages")
        if given < function.least or (function.most is not None and given > function.most):
            raise self._failed(f"{name} with {given} arguments")
        arguments = []
        for operand in operands:
            self._budget.step()
            arguments.append(self._operand(operand, dot))
        if last is not None:
            arguments.append(last)
        return function.call(arguments, self._budget)

    @staticmethod
    def _failed(what: str) -> TokenizerError:
        return TokenizerError(f"the Go template failed: {what}")
