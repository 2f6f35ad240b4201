// A code interpreter for an agent: snippets of Python run in one process inside a sandbox, so that a later one finds what
// an earlier one has made.
import { type Process, Sandbox } from "@sandgate/client";

/** Reads a snippet a line, as JSON, and answers each with a line. A last expression's value is shown, as in a notebook. */
const interpreter = `
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
`;

class CodeInterpreter {
  readonly #process: Process;
  readonly #answers: AsyncGenerator<string>;

  private constructor(process: Process) {
    this.#process = process;
    this.#answers = linesOf(process);
  }

  static async open(sandbox: Sandbox): Promise<CodeInterpreter> {
    return new CodeInterpreter(await sandbox.commands.start(["python3", "-c", interpreter], { stdinOpen: true }));
  }

  /** Runs a snippet. One that takes too long ends the interpreter, and all that it knew. */
  async run(code: string, timeoutMs = 60_000): Promise<{ output: string; failed: boolean }> {
    await this.#process.write(`${JSON.stringify(code)}\n`);
    const timer = setTimeout(() => void this.#process.kill(), timeoutMs);
    const { value } = await this.#answers.next();
    clearTimeout(timer);
    if (value === undefined) throw new Error("The interpreter has ended: the snippet took too long, or ended it.");
    return JSON.parse(value);
  }
}

async function* linesOf(process: Process): AsyncGenerator<string> {
  let rest = "";
  for await (const { stream, data } of process.output) {
    if (stream !== "stdout") continue;
    const lines = (rest + data).split("\n");
    rest = lines.pop() ?? "";
    yield* lines;
  }
}

await using sandbox = await Sandbox.create("python", { labels: { purpose: "interpreter" }, ttlSeconds: 900 });
const python = await CodeInterpreter.open(sandbox);
// What an agent would send, one after the other.
const snippets = [
  "prices = [3, 5, 8]",
  "total = sum(prices)\ntotal",
  "prices[7]",
  "print(f'{total} for {len(prices)}')",
];
for (const snippet of snippets) {
  const { output, failed } = await python.run(snippet);
  console.log(`>>> ${snippet.replaceAll("\n", "; ")}\n${failed ? "failed: " : ""}${output.trim()}`);
}
