/** True if a subject matches a NATS pattern, in which `*` stands for one token and a final `>` for one or more. */
export function matchesSubject(pattern: string, subject: string): boolean {
  const wanted = pattern.split(".");
  const tokens = subject.split(".");
  for (const [index, want] of wanted.entries()) {
    if (want === ">" && index === wanted.length - 1) return tokens.length > index;
    const token = tokens[index];
    if (token === undefined || (want !== "*" && want !== token)) return false;
  }
  return wanted.length === tokens.length;
}
