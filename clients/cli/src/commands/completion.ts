import { named, UsageError } from "../args.ts";
import { commands } from "../commands.ts";
import { write } from "../output.ts";
import { setUp } from "../setup.ts";

/** These take a sandbox, whose names are asked for. */
const withSandbox = ["exec", "shell", "cp", "logs", "stats", "port", "forward", "extend", "stop"];

export async function run(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { positionals } = setUp(args, signal, {});
  const [shell = ""] = named(positionals, "SHELL");
  const script = scripts[shell];
  if (script === undefined) throw new UsageError(`${JSON.stringify(shell)}: bash, zsh or fish is expected`);
  await write(script());
  return 0;
}

const names = () => Object.keys(commands).join(" ");

const scripts: Record<string, () => string> = {
  bash: () => `_sandgate() {
  local word=\${COMP_WORDS[COMP_CWORD]} words= name
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="${names().replaceAll(" ", "\n")}"
  else
    case \${COMP_WORDS[1]} in
      ${withSandbox.join("|")}) words=$(sandgate ps -o name 2>/dev/null) ;;
      run) words=$(sandgate images -o name 2>/dev/null) ;;
    esac
  fi
  COMPREPLY=()
  # What others have named is nothing to expand.
  while IFS= read -r name; do
    if [[ -n $name && $name == "$word"* ]]; then COMPREPLY+=("$(printf %q "$name")"); fi
  done <<<"$words"
}
complete -o default -F _sandgate sandgate
`,
  zsh: () => `#compdef sandgate
_sandgate() {
  if (( CURRENT == 2 )); then
    compadd -- ${names()}
  else
    case \${words[2]} in
      ${withSandbox.join("|")}) compadd -- \${(f)"$(sandgate ps -o name 2>/dev/null)"} ;;
      run) compadd -- \${(f)"$(sandgate images -o name 2>/dev/null)"} ;;
      *) _files ;;
    esac
  fi
}
compdef _sandgate sandgate
`,
  fish: () =>
    [
      "complete -c sandgate -f -n __fish_use_subcommand -a '",
      names(),
      "'\n",
      ...withSandbox.map(
        (name) =>
          `complete -c sandgate -n '__fish_seen_subcommand_from ${name}' -a '(sandgate ps -o name 2>/dev/null)'\n`,
      ),
      "complete -c sandgate -n '__fish_seen_subcommand_from run' -a '(sandgate images -o name 2>/dev/null)'\n",
    ].join(""),
};
