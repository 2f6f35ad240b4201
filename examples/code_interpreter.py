"""A code interpreter for an agent: snippets of Python run in one process inside a sandbox, so that a later one finds
what an earlier one has made."""

import json
import threading

from sandgate import Sandbox

# Reads a snippet a line, as JSON, and answers each with a line. A last expression's value is shown, as in a notebook.
INTERPRETER = """
import ast, contextlib, io, json, sys, traceback
names = {"__name__": "__main__"}
for line in sys.stdin:
    output, failed = io.StringIO(), False
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            tree = ast.parse(json.loads(line))
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "<snippet>", "exec"), names)
            if last:
                value = eval(compile(ast.Expression(last.value), "<snippet>", "eval"), names)
                if value is not None:
                    print(repr(value))
        except BaseException:
            failed = True
            traceback.print_exc(limit=-1)
    print(json.dumps({"output": output.getvalue(), "failed": failed}), flush=True)
"""


class CodeInterpreter:
    def __init__(self, sandbox: Sandbox) -> None:
        self._process = sandbox.commands.start(["python3", "-c", INTERPRETER], stdin_open=True)
        self._answers = self._lines()

    def run(self, code: str, timeout_seconds: float = 60) -> dict:
        """Runs a snippet. One that takes too long ends the interpreter, and all that it knew."""
        self._process.write(json.dumps(code) + "\n")
        timer = threading.Timer(timeout_seconds, self._process.kill)
        timer.start()
        answer = next(self._answers, None)
        timer.cancel()
        if answer is None:
            raise RuntimeError("The interpreter has ended: the snippet took too long, or ended it.")
        return json.loads(answer)

    def _lines(self):
        rest = ""
        for chunk in self._process.output:
            if chunk.stream == "stdout":
                *lines, rest = (rest + chunk.data).split("\n")
                yield from lines


with Sandbox.create("python", labels={"purpose": "interpreter"}, ttl_seconds=900) as sandbox:
    python = CodeInterpreter(sandbox)
    # What an agent would send, one after the other.
    snippets = ["prices = [3, 5, 8]", "total = sum(prices)\ntotal", "prices[7]", "print(f'{total} for {len(prices)}')"]
    for snippet in snippets:
        result = python.run(snippet)
        print(">>>", snippet.replace("\n", "; "))
        print(("failed: " if result["failed"] else "") + result["output"].strip())
