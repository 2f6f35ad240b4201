/** A message of the engine, containerd or runc about a start, without the layers of programs that it came through. */
export function withoutLayers(message: string): string {
  return message
    .replace(/^.*(unable to start container process|container init|create failed): /s, "")
    .replace(/: unknown$/, "");
}
