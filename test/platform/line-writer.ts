/**
 * A shell script that writes `line 1`, `line 2` and so on for as long as it runs, and ends with 0 on SIGTERM.
 */
export function lineWriter(o: { everySeconds: number; lastLine?: string }): string {
  const end = o.lastLine === undefined ? "exit 0" : `echo ${o.lastLine}; exit 0`;
  return `trap '${end}' TERM; i=0; while :; do i=$((i + 1)); echo "line $i"; sleep ${o.everySeconds}; done`;
}
