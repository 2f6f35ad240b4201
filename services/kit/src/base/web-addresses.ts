export function isWebAddress(text: string): boolean {
  return ["http:", "https:"].includes(URL.parse(text)?.protocol ?? "");
}

/** An address or path without the slashes at its end. */
export function trimEndSlashes(address: string): string {
  // In linear time.
  return address.replace(/(?<!\/)\/+$/, "");
}
